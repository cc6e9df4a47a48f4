// One collective call of one rank: what was asked, and how it ends.
//
// Made by the caller's thread, run by whoever drives the lane, finished exactly once. Any thread
// may ask finished(), read error() after that, and add callbacks.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "algorithm/planner.h"
#include "base/buffers.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread_annotations.h"
#include "codec/block_map.h"
#include "engine/compiled_schedule.h"
#include "engine/message.h"

namespace ringdist {

// The other end of a send or a receive. Sends meet receives by (source, tag), in the order of the
// calls on both sides; they take no op number.
struct Endpoint {
  static constexpr int kAnySource = -1;
  int peer = kAnySource;
  int32_t tag = 0;
  bool sends = false;
};

struct OpRequest {
  Collective kind = Collective::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp reduce_op = ReduceOp::kNone;
  int root = 0;
  int64_t count = 0;                  // elements, as in Shape
  std::vector<int64_t> input_parts;   // as in Shape
  std::vector<int64_t> output_parts;  // as in Shape
  std::optional<Endpoint> endpoint;   // of kPointToPoint
  Buffer input;                       // what Shape says that a collective reads; a send's data
  Buffer output;
  // Null: uncompressed. Covers an allreduce's output, a reduce-scatter's input (all ranks' parts),
  // an allgather's input. Needs float32, bfloat16 or float16, and SUM or AVG where it reduces.
  std::shared_ptr<const BlockMap> blocks;
  bool of_state = false;             // messages call it CompressState.state_dict()'s
  bool hands_over = false;           // barriers after it wait for Communicator::handed_over(), too
  Milliseconds timeout{0};           // 0: the group's
  std::shared_ptr<void> keep_alive;  // holds the memory of both buffers until all sends left
  // Null, or called on success, usually on a lane: so brief and without the GIL.
  std::function<void()> succeeded;
};

class Op {
 public:
  explicit Op(OpRequest request) : request(std::move(request)) {}
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

  // Set by the communicator before the op is enqueued, constant afterwards. A send or a receive has
  // no number, and its schedule is the lane's affair.
  OpRequest request;
  uint64_t number = 0;
  Plan plan;
  std::shared_ptr<const CompiledSchedule> schedule;
  Fingerprint fingerprint{};
  TimePoint started;
  TimePoint deadline;
  bool warned = false;  // the lane's: how long it waits has been logged

  // Of a receive that has been bound: the rank whose data it gets; else -1.
  int source() const { return source_.load(std::memory_order_acquire); }
  void set_source(int rank) { source_.store(rank, std::memory_order_release); }

  // "all_reduce #12 (float32, 1000 elements, SUM)"
  std::string describe() const;

  bool finished() const { return finished_.load(std::memory_order_acquire); }
  // Success until finished.
  Error error() const { return finished() ? error_ : Error(); }

  // Runs `callback` once the op is finished: at once, here, if it is; else as one of those that
  // finish() returns.
  void when_finished(std::function<void()> callback);

  // Ends the op and returns the callbacks to run (not on a lane). Later calls change nothing.
  std::vector<std::function<void()>> finish(Error error);

 private:
  std::mutex mutex_;
  std::vector<std::function<void()>> callbacks_ RINGDIST_GUARDED_BY(mutex_);
  Error error_;
  std::atomic<bool> finished_{false};
  std::atomic<int> source_{-1};
};

}  // namespace ringdist
