// One op: a collective, send or receive of one rank. It holds the request, the plan and the result.
//
// The caller's thread creates an op and submits it; the thread that holds the lane's progress lock
// executes it and finishes it exactly once. Threads: finished(), error(), describe() and
// when_finished() may be called from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffers.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread_annotations.h"
#include "os/thread_usage.h"
#include "plan/compiled_schedule.h"
#include "plan/fingerprint.h"
#include "plan/op_spec.h"
#include "plan/plan.h"

namespace ringdist {

class DeviceWork;  // engine/device/device_runner.h

// The caller's request: the op spec, and the memory that the op reads and writes.
struct OpRequest : OpSpec {
  Buffer input;   // the input of a collective as in Shape, or the data of a send
  Buffer output;  // the output of a collective as in Shape, or the memory of a receive
  // Device and stream of both buffers; empty for host memory.
  std::optional<DeviceStream> device_stream;
  bool output_staged = false;  // later barriers also wait for Communicator::output_delivered()
  Milliseconds timeout{0};     // 0: the group's timeout
  // Keeps the memory of both buffers alive until all sends have completed.
  std::shared_ptr<void> keep_alive;
  // Null, or a function that is called when the op has ended, with the lane's progress lock held.
  // It must be brief and must neither take the GIL nor throw.
  std::function<void(const Error&)> on_end;
};

// Returns the name of an op, "send" or "recv" for kPointToPoint.
std::string_view op_name(Collective kind, bool sends);

// Returns a text such as "element 7 of the input of all_reduce #12" about the first NaN among the
// values on the host that the op reads on this rank; nothing if there is none. `number` is that of
// a collective.
std::optional<std::string> find_nan_read(const OpRequest& request, int rank, uint64_t number);

// An op from its submission to its result. Shared by the caller, the group and the executions.
class Op {
 public:
  explicit Op(OpRequest&& request) : request(std::move(request)) {}
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

  // The request, number, plan, schedule and fingerprint are set before the op is enqueued and
  // constant afterwards, with these exceptions. A send or receive has no number, and the lane makes
  // its schedule. An op on a device has no schedule. An op that was submitted before its group had
  // formed may be planned again then.
  OpRequest request;
  uint64_t number = 0;  // position among the group's collectives, from 1
  Plan plan;
  std::shared_ptr<const CompiledSchedule> schedule;
  Fingerprint fingerprint{};  // fingerprint that the other ranks compare with theirs
  // Fingerprint at the time of the call, which describe() uses. `fingerprint` may differ: an op
  // that was called before its group had formed may be planned again then.
  Fingerprint called{};
  TimePoint started;
  ThreadUsage usage;  // usage of the caller before the call
  // Used by the lane: the longest time so far without progress here, because another rank had not
  // called the op yet or the network was slow. 0 on a device.
  Duration longest_wait{};
  TimePoint deadline;
  bool warned = false;  // used by the lane: a warning about the op has been logged
  uint64_t record = 0;  // used by the OpLog: number of its OpRecord, or 0
  // Handle of an op on a device. It is set once the op has been started on the device, after it has
  // been enqueued. Only the caller uses it; no lane reads it.
  std::shared_ptr<DeviceWork> device_work;

  // Returns the rank that a matched receive gets its data from; else -1. Any thread.
  int source() const { return source_.load(std::memory_order_acquire); }
  void set_source(int rank) { source_.store(rank, std::memory_order_release); }

  // Returns a description for messages, such as "all_reduce #12 (float32, 1000 elements, SUM)". Any
  // thread, once the op has been planned.
  std::string describe() const;

  // Returns true once the op has ended, well or with an error. Everything that the op wrote to host
  // memory is then visible to the caller.
  bool finished() const { return state_.load(std::memory_order_acquire) == State::kFinished; }
  // Returns the error of a finished op; success until then.
  Error error() const { return finished() ? error_ : Error(); }

  // Calls `callback` once the op has finished. If it already has, the call happens here and now.
  // Otherwise the callback is returned by take_callbacks(), and the dispatcher runs it on the task
  // pool. Any thread.
  void when_finished(std::function<void()> callback);

  // Ends the op with the error or success, and calls `on_end`. Returns true if there are callbacks
  // to run, which must not happen on a lane. Later calls have no effect. One thread at a time.
  bool finish(Error error);
  // Removes and returns the registered callbacks. Any thread.
  std::vector<std::function<void()>> take_callbacks();
  std::shared_ptr<Op> next;  // used by the lane after finish(): links ops with callbacks to run

 private:
  // In kWatched the op is unfinished, and callbacks are registered.
  enum class State : uint8_t { kOpen, kWatched, kFinished };

  std::atomic<State> state_{State::kOpen};
  // Written before state_ becomes kFinished, and constant afterwards, so readers need no lock.
  Error error_;
  std::mutex mutex_;
  std::vector<std::function<void()>> callbacks_ RINGDIST_GUARDED_BY(mutex_);
  std::atomic<int> source_{-1};
};

}  // namespace ringdist
