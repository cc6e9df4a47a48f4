// Tells when events of devices are reached: one thread for all groups of a process. Any thread may
// add.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread_annotations.h"
#include "cuda/api/cuda_api.h"

namespace ringdist::gpu {

// What is watched for one op.
struct WatchedOp {
  std::shared_ptr<void> event;       // an Event, which is freed with the last of its owners
  std::function<Error()> check;      // what went wrong, asked for now and then and at the end
  std::function<void(Error)> ended;  // called once
  std::vector<std::shared_ptr<void>> held;  // let go when the event is reached
};

class EventWatcher {
 public:
  // Without a thread of its own poll() is the caller's to call.
  enum class Polls : uint8_t { kItself, kByCaller };

  explicit EventWatcher(CudaApi& cuda, Polls polls = Polls::kItself);
  // What is not reached is forgotten; its memory stays taken.
  ~EventWatcher();
  EventWatcher(const EventWatcher&) = delete;
  EventWatcher& operator=(const EventWatcher&) = delete;

  void add(WatchedOp what);
  // Looks once at all of them. True if any is not reached yet.
  bool poll();

 private:
  struct Entry {
    WatchedOp what;
    TimePoint next_check;
  };
  void run();
  bool finish_if_reached(Entry& entry);
  static void tell(Entry& entry, const Error& error);

  CudaApi& cuda_;
  std::mutex mutex_;  // a leaf
  std::condition_variable added_;
  std::vector<Entry> fresh_ RINGDIST_GUARDED_BY(mutex_);
  bool stops_ RINGDIST_GUARDED_BY(mutex_) = false;
  std::vector<Entry> entries_;  // the polling thread's
  std::thread thread_;
};

}  // namespace ringdist::gpu
