// Watches events on devices and reports when they are reached. One polling thread serves all groups
// of a process.
//
// Any thread may call add(). Callbacks run on the polling thread, without a lock.
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

// One op to watch. `ended` may be null. It is not called if the watcher ends before the op.
struct WatchedOp {
  std::shared_ptr<void> event;       // an Event, which is freed with its last owner
  std::function<Error()> check;      // returns what went wrong; called at intervals and at the end
  std::function<void(Error)> ended;  // called once, with the result
  std::vector<std::shared_ptr<void>> held;  // released when the event is reached or fails
};

// Polls the events of ops until they are reached.
class EventWatcher {
 public:
  // With kItself, a thread polls. With kByCaller, the caller must call poll(), as tests do.
  enum class Polls : uint8_t { kItself, kByCaller };

  explicit EventWatcher(CudaApi& cuda, Polls polls = Polls::kItself);
  // Stops watching. Memory of ops that are not done stays allocated until the process ends.
  ~EventWatcher();
  EventWatcher(const EventWatcher&) = delete;
  EventWatcher& operator=(const EventWatcher&) = delete;

  // Starts to watch an op.
  void add(WatchedOp what);
  // Checks all ops once. Returns true if some are not done.
  bool poll();

 private:
  // An op and the time of its next check.
  struct Watched {
    WatchedOp what;
    TimePoint next_check;
  };
  // Polls until the destructor stops it. Sleeps while there is nothing to watch.
  void run();
  // Reports the op if it is done, or if its check fails. Returns true if it is done.
  bool finish_if_reached(Watched& watched);
  // Calls `ended` unless it has been called.
  static void tell(Watched& watched, const Error& error);

  CudaApi& cuda_;
  std::mutex mutex_;  // a leaf lock
  std::condition_variable added_;
  std::vector<Watched> fresh_ RINGDIST_GUARDED_BY(mutex_);  // added, but not seen by poll()
  bool stops_ RINGDIST_GUARDED_BY(mutex_) = false;
  std::vector<Watched> watched_;  // used by the polling thread only
  std::thread thread_;
};

}  // namespace ringdist::gpu
