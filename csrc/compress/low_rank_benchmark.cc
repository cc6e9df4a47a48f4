#include "compress/low_rank_benchmark.h"

#include <memory>

namespace ringdist {

LowRankBenchmark::LowRankBenchmark(const MatrixShape& shape)
    : shape_(shape),
      values_(static_cast<size_t>(shape.count())),
      residual_(values_.size()),
      left_(static_cast<size_t>(shape.left())),
      right_(static_cast<size_t>(shape.right())) {
  draw_noise(0, values_);
  draw_noise(1, right_);
}

void LowRankBenchmark::run() {
  multiply_right(shape_, values_, residual_, right_, left_);
  orthonormalise(shape_, left_);
  multiply_left(shape_, values_, residual_, left_, right_);
  reconstruct(shape_, left_, right_, right_, values_, residual_);
}

std::function<void()> benchmark_on_host(const MatrixShape& shape, GradientMemory&) {
  return [rehearsal = std::make_shared<LowRankBenchmark>(shape)] { rehearsal->run(); };
}

}  // namespace ringdist
