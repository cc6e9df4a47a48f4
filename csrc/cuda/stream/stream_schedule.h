// Puts an op on a stream, as a schedule: exchange by exchange, what steps do to memory, then their
// messages. Waits for nothing.
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

// A rank's schedule as a stream runs it: one exchange after another. In each, steps do what they do
// to memory, and then messages move, all at once: a stream goes on when those of an exchange have.
// Two ranks have a message in exchanges of one number, and what is sent in one depends on earlier
// ones alone, so none waits for ever (tests/cpp/cuda/stream/exchanges_test.cc).
//
// Pure. Any thread.

// An end of an edge: `slot` is an index into its step's `out` or `in`.
struct ExchangeMessage {
  int step;
  int slot;
  // Of one that comes in: may lie where its step is to write. Else something there is in use still.
  bool in_place = false;
};

struct Exchange {
  // In their order; one with messages that come in has had all of them. A relay among them is taken
  // as a receipt.
  std::vector<int> steps;
  std::vector<ExchangeMessage>
      sends;  // by peers in the order of their edges, as those that come in
  std::vector<ExchangeMessage> receives;
};

// Of a rank that was walked, with Messages::kMet.
std::vector<Exchange> exchanges_of(const RoundAssignment& walk, int rank);

// What a rank does in such a collective. Immutable.
struct StreamSchedule {
  std::shared_ptr<const CompiledSchedule> steps;
  std::vector<Exchange> exchanges;
};

// Works out the schedules of all ranks: of the order of their steps. Pure.
StreamSchedule make_stream_schedule(const Algorithm& algorithm, Collective kind, Shape shape);

// All errors leave the stream with a part of the op.
Error enqueue(const StreamSchedule& schedule, StreamOp& op, StreamArithmetic& arithmetic,
              DeviceLink& link);

// The ops of a group that run as schedules on streams - compressed ones, and reductions that NCCL
// does not have - and the schedules of the last of them. One thread at a time; check() by any.
class StreamSchedules {
 public:
  StreamSchedules(CudaApi& cuda, int rank, int size) : cuda_(cuda), rank_(rank), size_(size) {}

  // Before an op is enqueued. Errors: kNotSupported, as of schedule_refusal(); CUDA's.
  Error prepare(const OpSpec& request);
  // As DevicePath::enqueue().
  Error enqueue(const DeviceOp& op, Stream stream, DeviceLink& link, KeptAlive& held);
  // That bytes came which no encoder writes.
  Error check() const;

 private:
  using Key = std::tuple<const Algorithm*, Collective, int64_t, int, uint64_t>;

  Error make_malformed();
  std::shared_ptr<int> malformed() const;
  const StreamSchedule& find(const DeviceOp& op);
  Shape shape_of(const OpSpec& request) const;

  CudaApi& cuda_;
  const int rank_;
  const int size_;
  std::map<Key, StreamSchedule> schedules_;
  StreamSchedule last_;       // one with parts of its own
  mutable std::mutex mutex_;  // a leaf
  // Pinned, set to 1 by kernels; null before the first compressed op.
  std::shared_ptr<int> malformed_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist::gpu
