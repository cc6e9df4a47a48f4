// The arithmetic of PowerSGD without the exchange, for timing it: over a matrix beyond the caches,
// as gradients are. One thread at a time.
#pragma once

#include <functional>
#include <vector>

#include "codec/gradient_memory.h"
#include "kernel/low_rank.h"

namespace ringdist {

class LowRankBenchmark {
 public:
  explicit LowRankBenchmark(const MatrixShape& shape);
  // What a reduction computes on the way, residual included.
  void run();

 private:
  const MatrixShape shape_;
  std::vector<float> values_, residual_, left_, right_;
};

// Of the host, whatever memory is meant.
std::function<void()> benchmark_on_host(const MatrixShape& shape, GradientMemory&);

}  // namespace ringdist
