// The least that shows that a group works.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
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

// RINGDIST_TEST_SEEDS=1000 engine_test --gtest_filter='Shrink.*:Join.*': that many.
inline uint64_t wanted_seeds(uint64_t usual) {
  const char* const given = std::getenv("RINGDIST_TEST_SEEDS");
  return given ? std::stoull(given) : usual;
}

}  // namespace ringdist
