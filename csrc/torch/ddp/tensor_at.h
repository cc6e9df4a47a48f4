#pragma once

#include <ATen/ATen.h>

namespace ringdist {

// Over memory of the device that others hold: contiguous.
inline at::Tensor tensor_at(const void* data, at::IntArrayRef sizes, at::ScalarType type,
                            c10::Device device) {
  return at::for_blob(const_cast<void*>(data), sizes)
      .options(at::TensorOptions().dtype(type).device(device))
      .target_device(device)
      .make_tensor();
}

}  // namespace ringdist
