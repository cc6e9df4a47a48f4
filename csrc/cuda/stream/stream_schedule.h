// Runs ops as schedules on streams. For each exchange, enqueues the work of its steps, and then its
// messages. Does not wait for them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "algorithm/schedule.h"
#include "base/error.h"
#include "base/thread_annotations.h"
#include "cuda/stream/device_link.h"
#include "cuda/stream/device_path.h"
#include "cuda/stream/stream_arithmetic.h"
#include "cuda/stream/stream_op.h"
#include "engine/device/device_runner.h"
#include "plan/compiled_schedule.h"
#include "plan/round_assignment.h"

namespace ringdist::gpu {

// A rank's schedule, arranged for a stream as a sequence of exchanges. In each exchange, steps do
// their work, and then all messages move concurrently. The stream continues when all have moved.
//
// Two ranks have a message in exchanges of the same number. The messages of an exchange depend on
// earlier exchanges only, so there is no deadlock (tests/cpp/cuda/stream/exchanges_test.cc).
//
// Pure. Any thread.

// One end of an edge. `slot` is an index into the step's `out` or `in`.
struct ExchangeMessage {
  int step;
  int slot;
  // For a received message: it may arrive directly where its step writes. Otherwise something there
  // is still in use.
  bool in_place = false;
};

// One exchange of a rank.
struct Exchange {
  // Steps in their order. The messages that a step receives have arrived in earlier exchanges. A
  // relay stores its message like a receive, and sends it on.
  std::vector<int> steps;
  std::vector<ExchangeMessage> sends;  // in the order of the edges of each peer, as are receives
  std::vector<ExchangeMessage> receives;
};

// Returns the exchanges of a rank from rounds with SendMode::kMet.
std::vector<Exchange> exchanges_of(const RoundAssignment& assignment, int rank);

// Schedule of one rank for one collective. Immutable.
struct StreamSchedule {
  std::shared_ptr<const CompiledSchedule> steps;
  std::vector<Exchange> exchanges;
};

// Creates the schedule. Computes the schedules of all ranks, because the exchanges follow from the
// order of their steps. Pure.
StreamSchedule make_stream_schedule(const Algorithm& algorithm, Collective kind,
                                    const Shape& shape);

// Enqueues the op on its stream. After an error, the stream may have a part of the op.
Error enqueue(const StreamSchedule& schedule, StreamOp& op, StreamArithmetic& arithmetic,
              DeviceLink& link);

// Runs ops as schedules and caches the schedules. These are compressed ops, and reductions that
// NCCL cannot do. One thread at a time; any thread may call check().
class StreamSchedules {
 public:
  StreamSchedules(CudaApi& cuda, int rank, int size) : cuda_(cuda), rank_(rank), size_(size) {}

  // Prepares an op before it is enqueued. Errors are those of schedule_refusal() and of CUDA.
  Error prepare(const OpSpec& request);
  // See DevicePath::enqueue().
  Error enqueue(const DeviceOp& op, Stream stream, DeviceLink& link, KeptAlive& held);
  // Returns kProtocol if a kernel has received bytes that no encoder writes.
  Error check() const;

 private:
  // Algorithm, collective, elements, root, and hash of the compression, which affects shards.
  using Key = std::tuple<const Algorithm*, Collective, int64_t, int, uint64_t>;

  // Allocates the flag that kernels set.
  Error make_malformed();
  std::shared_ptr<int> malformed() const;
  // Returns the schedule of an op, from the cache if possible. Valid until the next call.
  const StreamSchedule& find(const DeviceOp& op);
  Shape shape_of(const OpSpec& request) const;

  CudaApi& cuda_;
  const int rank_;
  const int size_;
  std::map<Key, StreamSchedule> schedules_;
  StreamSchedule last_;       // schedule of an op with parts of its own, which is not cached
  mutable std::mutex mutex_;  // a leaf lock
  // Pinned word that kernels set to 1. Null before the first compressed op.
  std::shared_ptr<int> malformed_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist::gpu
