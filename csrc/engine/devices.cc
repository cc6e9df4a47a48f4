#include "engine/devices.h"

#include "os/library_beside.h"

namespace ringdist {

Result<const CudaLibrary*> load_cuda() {
  auto entry = symbol_beside("libringdist_cuda.so", "ringdist_cuda_library");
  if (!entry.ok())
    return Error(ErrorKind::kSystem, "no library for CUDA (" + entry.error().message() +
                                         "); `make cuda`, or RINGDIST_CUDA=ON at the build, makes "
                                         "it where nvcc is");
  using Entry = const CudaLibrary* (*)();
  return reinterpret_cast<Entry>(entry.value())();
}

}  // namespace ringdist
