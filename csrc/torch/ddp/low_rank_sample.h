// Matrices of noise on a device, for PowerSGD's arithmetic without an exchange: to time it, and to
// compare devices. One thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "compress/bucket.h"
#include "compress/cost_probe.h"

namespace ringdist {

class LowRankSample {
 public:
  LowRankSample(const std::vector<MatrixShape>& shapes, c10::Device device);

  // All stages, on the current stream, as if the other ranks gave the same. Returns the averages,
  // which are what a later call begins with.
  const at::Tensor& run();

 private:
  at::Tensor bucket_;
  std::vector<FloatBuffer> residuals_;
  std::vector<LowRankInput> inputs_;
};

// As LinkProbe::Delegate has it.
std::function<void()> benchmark_low_rank(const MatrixShape& shape, c10::Device device);

// Whether the devices of all ranks give the same bits, without which models would drift apart. All
// ranks call it; waits for them and for the device. Errors: kNotSupported; those of the probe.
Error check_devices_alike(CostProbe& probe, c10::Device device);

}  // namespace ringdist
