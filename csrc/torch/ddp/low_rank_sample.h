// LowRankSample: runs PowerSGD's arithmetic on noise on a device, without communication. It is used
// to measure the time and to compare devices. One thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "compress/bucket.h"
#include "compress/cost_probe.h"

namespace ringdist {

// A bucket of noise, made of matrices with the given shapes.
class LowRankSample {
 public:
  LowRankSample(const std::vector<MatrixShape>& shapes, c10::Device device);

  // Runs all stages on the current stream, as if the other ranks had the same data. Returns the
  // averages, with which the next call begins.
  const at::Tensor& run();

 private:
  at::Tensor bucket_;
  std::vector<FloatBuffer> residuals_;
  std::vector<LowRankInput> inputs_;
};

// Returns a function that runs one matrix, for LinkProbe::Delegate.
std::function<void()> benchmark_low_rank(const MatrixShape& shape, c10::Device device);

// Checks that the devices of all ranks compute the same bits; otherwise models would diverge. All
// ranks have to call it. Waits for them and for the device. Errors: kNotSupported, and those of the
// probe.
Error check_devices_alike(CostProbe& probe, c10::Device device);

}  // namespace ringdist
