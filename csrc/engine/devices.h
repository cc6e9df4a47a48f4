// CUDA lives in a library of its own, libringdist_cuda.so beside this one, loaded when somebody
// first asks for a device: a process that uses none maps none of CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace ringdist {

struct DeviceFound {
  std::string name;        // "NVIDIA H100 80GB HBM3"
  std::string capability;  // "9.0"
  int64_t bytes = 0;       // of its memory
};

struct DevicesFound {
  std::string built_for;  // the architectures of the kernels, "80, 90, 100"
  std::string problem;    // why there are none: in CUDA's words; "" where there are
  std::vector<DeviceFound> devices;
};

// What libringdist_cuda.so exports.
struct CudaLibrary {
  // Asks the driver, which takes a tenth of a second at first.
  DevicesFound (*devices)();
};

// Loads the library once per process. Error (kSystem): it was not built, or cannot be loaded. Any
// thread.
Result<const CudaLibrary*> load_cuda();

}  // namespace ringdist
