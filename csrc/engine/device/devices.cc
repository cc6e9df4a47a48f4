#include "engine/device/devices.h"

#include "os/bundled_library.h"

namespace ringdist {

Result<const CudaLibrary*> load_cuda() {
  constexpr const char* kLibrary = "libringdist_cuda.so";
  // The number is read before any function is called, since these may have changed their types.
  const auto interface_number = load_bundled_symbol(kLibrary, "ringdist_cuda_interface");
  if (interface_number.ok() && *static_cast<const int*>(interface_number.value()) != kCudaInterface)
    return Error(
        ErrorKind::kSystem,
        std::string(kLibrary) + " was left by an earlier build; `make cuda` builds it anew");
  auto entry = load_bundled_symbol(kLibrary, "ringdist_cuda_library");
  if (!entry.ok())
    return Error(ErrorKind::kSystem, "no library for CUDA (" + entry.error().message() +
                                         "); `make cuda`, or RINGDIST_CUDA=ON at the build, makes "
                                         "it where nvcc is");
  using Entry = const CudaLibrary* (*)();
  return reinterpret_cast<Entry>(entry.value())();
}

Result<std::unique_ptr<DeviceRunner>> make_cuda_runner(RunnerDelegate& group,
                                                       const std::string& path) {
  const auto library = load_cuda();
  if (!library.ok()) return library.error();
  return library.value()->make_runner(group, path);
}

}  // namespace ringdist
