// Gradients and residuals in the memory of a device, and tensors on such memory.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Device.h>

#include <optional>

#include "codec/gradient_memory.h"

namespace ringdist {

// Returns the GradientMemory of a device, which lives as long as the process. It uses ATen on the
// current stream; functions that return numbers wait for the stream. Any thread; raises c10::Error.
GradientMemory& device_memory(c10::Device device);

// Returns the device of `memory`; nothing for host memory.
std::optional<c10::Device> device_of(const GradientMemory& memory);

// Returns a contiguous tensor on memory of the device. The caller keeps the memory alive.
inline at::Tensor tensor_at(const void* data, at::IntArrayRef sizes, at::ScalarType type,
                            c10::Device device) {
  return at::for_blob(const_cast<void*>(data), sizes)
      .options(at::TensorOptions().dtype(type).device(device))
      .target_device(device)
      .make_tensor();
}

}  // namespace ringdist
