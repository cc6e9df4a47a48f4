// The operation without data.
#pragma once

#include "torch/ops/call.h"

namespace ringdist {

inline Call barrier_call(const c10d::BarrierOptions& opts) {
  return Call(Collective::kBarrier, DType::kBytes, c10d::OpType::BARRIER, "ringdist:barrier",
              Call::wait_options(opts));
}

}  // namespace ringdist
