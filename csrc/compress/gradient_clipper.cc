#include "compress/gradient_clipper.h"

#include <algorithm>
#include <cmath>

namespace ringdist {

double GradientClipper::factor(double norm, double limit) {
  if (!std::isfinite(norm) || norm == 0) return 1;
  const bool spike = steps_ >= kWarmup && norm > limit * mean_;
  const double kept = spike ? limit * mean_ : norm;
  // A plain mean at first, so that the first step has no more weight than the others.
  const double weight = std::max(1 - kKeep, 1.0 / static_cast<double>(++steps_));
  const double factor = kept / norm;
  mean_ += weight * (kept - mean_);
  return factor;
}

}  // namespace ringdist
