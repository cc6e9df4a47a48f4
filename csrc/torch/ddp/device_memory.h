// Gradients and residuals in a device's memory, and tensors over such memory.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Device.h>

#include <optional>

#include "codec/gradient_memory.h"

namespace ringdist {

// Of the device, by ATen on the current stream; what returns a number waits for that. Any thread;
// raises c10::Error.
GradientMemory& device_memory(c10::Device device);

// None of the host's.
std::optional<c10::Device> device_of(const GradientMemory& memory);

// Over memory of the device that others hold: contiguous.
inline at::Tensor tensor_at(const void* data, at::IntArrayRef sizes, at::ScalarType type,
                            c10::Device device) {
  return at::for_blob(const_cast<void*>(data), sizes)
      .options(at::TensorOptions().dtype(type).device(device))
      .target_device(device)
      .make_tensor();
}

}  // namespace ringdist
