// Caps the norm of a gradient at a multiple of its running mean: a spike that is compressed with
// error feedback leaks through the residual for many steps, so it is cut before encoding.
#pragma once

#include <cstdint>

namespace ringdist {

// One parameter's. Not thread-safe.
class GradientClipper {
 public:
  // What to multiply a gradient of this norm with: 1 unless it exceeds `limit` times the running
  // mean. Never in the first kWarmup steps, nor for a norm of zero, infinity or NaN, which do not
  // count.
  double factor(double norm, double limit);
  // For a new loss scale.
  void scale(double by) { mean_ *= by; }

  static constexpr int kWarmup = 10;

 private:
  static constexpr double kKeep = 0.9;  // of the exponential mean
  double mean_ = 0;
  int64_t steps_ = 0;
};

}  // namespace ringdist
