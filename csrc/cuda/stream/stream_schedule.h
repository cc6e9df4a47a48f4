// Puts an op on a stream, as a schedule: exchange by exchange, what steps do to memory, then their
// messages. Waits for nothing.
#pragma once

#include <memory>
#include <vector>

#include "algorithm/schedule.h"
#include "base/error.h"
#include "cuda/stream/device_link.h"
#include "cuda/stream/exchanges.h"
#include "cuda/stream/stream_arithmetic.h"
#include "cuda/stream/stream_op.h"
#include "plan/compiled_schedule.h"

namespace ringdist::gpu {

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

}  // namespace ringdist::gpu
