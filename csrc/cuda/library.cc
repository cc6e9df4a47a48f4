// Exports the two symbols of libringdist_cuda.so: the version of its interface, and a table of
// functions. The functions list the devices, create the runner of a group's ops, and explain which
// path an op would take.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>

#include "cuda/cuda_runtime.h"
#include "cuda/nccl/loaded_nccl.h"
#include "cuda/stream/event_watcher.h"
#include "cuda/stream/host_path.h"
#include "cuda/stream/nccl_path.h"
#include "cuda/stream/path_rules.h"
#include "cuda/stream/path_selector.h"
#include "cuda/stream/stream_runner.h"
#include "engine/device/devices.h"

namespace ringdist {
namespace {

// Returns the CUDA API. It is never freed, because streams and events may outlive all groups.
gpu::CudaApi& cuda() {
  static auto* const kCuda = new gpu::CudaRuntime();
  return *kCuda;
}

// Lists the devices of this process. `problem` explains why the list is not complete.
DeviceList find_devices() {
  DeviceList out;
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
    const auto address = cuda().address(index);
    out.devices.push_back(
        {found.name, std::to_string(found.major) + "." + std::to_string(found.minor),
         static_cast<int64_t>(found.totalGlobalMem), address.ok() ? address.value() : ""});
  }
  if (count == 0) out.problem = "no device: the driver knows of none";
  return out;
}

// Returns NCCL, loaded at the first call, or the error. It stays loaded until the process ends.
const Result<std::unique_ptr<gpu::NcclApi>>& nccl() {
  static auto* const kNccl = new Result<std::unique_ptr<gpu::NcclApi>>(gpu::LoadedNccl::load());
  return *kNccl;
}

// Describes this process' NCCL. Several ranks may share a device if NCCL is 2.30.3 or later and
// NCCL_MULTI_RANK_GPU_ENABLE is 1.
gpu::NcclInfo nccl_found() {
  if (!nccl().ok()) return {0, nccl().error().message(), false};
  constexpr int kFirstThatShares = 23003;
  const int version = nccl().value()->version();
  const char* const shares = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  const bool enabled = shares != nullptr && std::string(shares) == "1";
  return {version, "", enabled && version >= kFirstThatShares};
}

// Returns the EventWatcher that all existing groups share. It ends with the last of them.
std::shared_ptr<gpu::EventWatcher> shared_watch() {
  static std::mutex mutex;
  static std::weak_ptr<gpu::EventWatcher> last;
  std::lock_guard lock(mutex);
  auto watch = last.lock();
  if (!watch) last = watch = std::make_shared<gpu::EventWatcher>(cuda());
  return watch;
}

// Converts the option device_path.
gpu::PathSelector::Wanted wanted_of(const std::string& path) {
  if (path.empty()) return gpu::PathSelector::Wanted::kAny;
  return path == "nccl" ? gpu::PathSelector::Wanted::kNccl : gpu::PathSelector::Wanted::kHost;
}

// Explains which path an op would take. Runs without devices.
Result<DevicePathChoice> route(const DevicePathQuery& question) {
  constexpr int kTaken = 22900;  // stands for the version of a rank that has NCCL
  return gpu::explain_path(question,
                           question.nccl ? gpu::NcclInfo{kTaken, "", false} : nccl_found());
}

// Creates the DeviceRunner of a group. Error kNotSupported: there is no device.
Result<std::unique_ptr<DeviceRunner>> make_runner(RunnerDelegate& group, const std::string& path) {
  const DeviceList found = find_devices();
  if (!found.problem.empty())
    return Error(ErrorKind::kNotSupported, "ringdist: CUDA: " + found.problem);
  const gpu::PathFactories ways{
      [](RunnerDelegate& of) {
        return std::make_shared<gpu::NcclPath>(cuda(), *nccl().value(), of);
      },
      [](RunnerDelegate& of) { return std::make_shared<gpu::HostPath>(cuda(), of); }};
  auto way =
      std::make_shared<gpu::PathSelector>(cuda(), group, nccl_found(), ways, wanted_of(path));
  return std::unique_ptr<DeviceRunner>(
      std::make_unique<gpu::StreamRunner>(cuda(), shared_watch(), std::move(way)));
}

}  // namespace
}  // namespace ringdist

extern "C" __attribute__((visibility("default"))) const int ringdist_cuda_interface =
    ringdist::kCudaInterface;

extern "C" __attribute__((visibility("default"))) const ringdist::CudaLibrary*
ringdist_cuda_library() {
  static constexpr ringdist::CudaLibrary kLibrary{RINGDIST_CUDA_ARCHITECTURES,
                                                  &ringdist::find_devices, &ringdist::make_runner,
                                                  &ringdist::route};
  return &kLibrary;
}
