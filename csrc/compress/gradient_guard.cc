#include "compress/gradient_guard.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "kernel/cast.h"

namespace ringdist {

double GradientGuard::factor(double norm, double limit) {
  if (!std::isfinite(norm) || norm == 0) return 1;
  const bool spike = steps_ >= kWarmup && norm > limit * mean_;
  const double kept = spike ? limit * mean_ : norm;
  // A plain mean at first, so that the first step has no more weight than the others.
  const double weight = std::max(1 - kKeep, 1.0 / static_cast<double>(++steps_));
  const double factor = kept / norm;
  mean_ += weight * (kept - mean_);
  return factor;
}

void scale_gradient(DType dtype, Bytes values, double factor) {
  std::array<float, 1024> wide;
  const size_t element = dtype_size(dtype);
  for (size_t at = 0; at < values.size(); at += wide.size() * element) {
    const Bytes stored = values.subspan(at, std::min(wide.size() * element, values.size() - at));
    const std::span<float> chunk = std::span(wide).first(stored.size() / element);
    widen(dtype, stored, chunk);
    for (float& value : chunk) value *= static_cast<float>(factor);
    narrow(dtype, chunk, stored);
  }
}

}  // namespace ringdist
