// Makes a device the calling thread's, until the end of this object.
#pragma once

#include "base/error.h"
#include "cuda/api/cuda_api.h"

namespace ringdist::gpu {

class ScopedDevice {
 public:
  ScopedDevice(CudaApi& cuda, int device)
      : cuda_(cuda), device_(device), before_(cuda.use(device)) {}
  ~ScopedDevice() {
    if (before_.ok() && before_.value() != device_) (void)cuda_.use(before_.value());
  }
  ScopedDevice(const ScopedDevice&) = delete;
  ScopedDevice& operator=(const ScopedDevice&) = delete;

  Error error() const { return before_.error(); }

 private:
  CudaApi& cuda_;
  const int device_;
  const Result<int> before_;
};

}  // namespace ringdist::gpu
