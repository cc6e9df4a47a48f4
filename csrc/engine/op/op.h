// One collective call of one rank: what was asked, and how it ends.
//
// Made by the caller's thread, run by whoever drives the lane, finished exactly once. Any thread
// may ask finished(), read error() after that, and add callbacks.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/buffers.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread_annotations.h"
#include "plan/compiled_schedule.h"
#include "plan/fingerprint.h"
#include "plan/op_spec.h"
#include "plan/plan.h"

namespace ringdist {

class DeviceWork;  // engine/device/device_runner.h

// What is asked, and what it works on.
struct OpRequest : OpSpec {
  Buffer input;  // what Shape says that a collective reads; a send's data
  Buffer output;
  std::optional<DeviceStream> device_stream;  // both buffers are there; none: in the host's memory
  bool output_staged = false;  // barriers after it wait for Communicator::output_delivered(), too
  Milliseconds timeout{0};     // 0: the group's
  std::shared_ptr<void> keep_alive;  // holds the memory of both buffers until all sends left
  // Null, or called when it has ended, with the lane's token: so brief, without the GIL, and throws
  // nothing.
  std::function<void(const Error&)> on_end;
};

class Op {
 public:
  explicit Op(OpRequest&& request) : request(std::move(request)) {}
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

  // Set by the communicator before the op is enqueued, constant afterwards. A send or a receive has
  // no number, and its schedule is the lane's affair; an op on a device has none.
  OpRequest request;
  uint64_t number = 0;
  Plan plan;
  std::shared_ptr<const CompiledSchedule> schedule;
  Fingerprint fingerprint{};  // what the other ranks are told
  // As planned when it was called: what describe() tells of, while the lane may plan it anew.
  Fingerprint called{};
  TimePoint started;
  TimePoint deadline;
  bool warned = false;  // the lane's: how long it waits has been logged
  // The caller's, of an op with a place: set when it has been started there, later than it is
  // enqueued. No lane looks at it.
  std::shared_ptr<DeviceWork> device_work;

  // Of a receive that has been bound: the rank whose data it gets; else -1.
  int source() const { return source_.load(std::memory_order_acquire); }
  void set_source(int rank) { source_.store(rank, std::memory_order_release); }

  // "all_reduce #12 (float32, 1000 elements, SUM)". Any thread, once it has been called.
  std::string describe() const;

  bool finished() const { return state_.load(std::memory_order_acquire) == State::kFinished; }
  // Success until finished.
  Error error() const { return finished() ? error_ : Error(); }

  // Runs `callback` once the op is finished: at once, here, if it is; else as one of
  // take_callbacks().
  void when_finished(std::function<void()> callback);

  // Ends the op. True if there are callbacks to run, not on a lane. A later call changes nothing.
  // One thread at a time.
  bool finish(Error error);
  std::vector<std::function<void()>> take_callbacks();
  std::shared_ptr<Op> next;  // the lane's, from finish() on: in its list of those with callbacks

 private:
  enum class State : uint8_t { kOpen, kWatched, kFinished };  // watched: it has callbacks

  std::atomic<State> state_{State::kOpen};
  Error error_;
  std::mutex mutex_;
  std::vector<std::function<void()>> callbacks_ RINGDIST_GUARDED_BY(mutex_);
  std::atomic<int> source_{-1};
};

}  // namespace ringdist
