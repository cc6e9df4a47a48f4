// The two symbols that libringdist_cuda.so exports, and the devices that it finds.
#include <cuda_runtime_api.h>

#include "engine/devices.h"

namespace ringdist {
namespace {

DevicesFound find_devices() {
  DevicesFound out;
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    out.problem = std::string("no device: ") + cudaGetErrorString(error);
    return out;
  }
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp found{};
    if (const cudaError_t error = cudaGetDeviceProperties(&found, index); error != cudaSuccess) {
      out.problem = "device " + std::to_string(index) + ": " + cudaGetErrorString(error);
      return out;
    }
    out.devices.push_back({found.name,
                           std::to_string(found.major) + "." + std::to_string(found.minor),
                           static_cast<int64_t>(found.totalGlobalMem)});
  }
  if (count == 0) out.problem = "no device: the driver knows of none";
  return out;
}

}  // namespace
}  // namespace ringdist

extern "C" __attribute__((visibility("default"))) const int ringdist_cuda_interface =
    ringdist::kCudaInterface;

extern "C" __attribute__((visibility("default"))) const ringdist::CudaLibrary*
ringdist_cuda_library() {
  static constexpr ringdist::CudaLibrary kLibrary{RINGDIST_CUDA_ARCHITECTURES,
                                                  &ringdist::find_devices};
  return &kLibrary;
}
