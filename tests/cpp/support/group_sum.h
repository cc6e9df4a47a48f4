// A minimal check that a group works, and the number of seeds for randomized tests.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/ranks.h"

namespace ringdist {

// Runs one allreduce over ones and returns the sum, or the error of the op.
inline Result<float> sum_of_ones(Communicator& group) {
  std::vector<float> values(64, 1.0f);
  if (Error error = run_op(group, allreduce_request(values, DType::kFloat32, ReduceOp::kSum)))
    return error;
  return values.back();
}

// Returns the number of seeds from RINGDIST_TEST_SEEDS, or `usual` if it is not set. Example:
// RINGDIST_TEST_SEEDS=1000 engine_test --gtest_filter='Shrink.*:Join.*'
inline uint64_t wanted_seeds(uint64_t usual) {
  const char* const given = std::getenv("RINGDIST_TEST_SEEDS");
  return given ? std::stoull(given) : usual;
}

}  // namespace ringdist
