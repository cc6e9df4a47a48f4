// The least that shows that a group works.
#pragma once

#include <vector>

#include "support/ranks.h"

namespace ringdist {

// Of one of each rank; the error, if it fails.
inline Result<float> sum_of_ones(Communicator& group) {
  std::vector<float> values(64, 1.0f);
  if (Error error = run_op(group, allreduce_request(values, DType::kFloat32, ReduceOp::kSum)))
    return error;
  return values.back();
}

}  // namespace ringdist
