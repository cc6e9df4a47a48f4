// CUDA lives in a library of its own, libringdist_cuda.so beside this one, loaded when somebody
// first asks for a device: a process that uses none maps none of CUDA.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/device/device_runner.h"
#include "plan/op_spec.h"

namespace ringdist {

struct DeviceInfo {
  std::string name;        // "NVIDIA H100 80GB HBM3"
  std::string capability;  // "9.0"
  int64_t bytes = 0;       // of its memory
  std::string address;     // on the PCI bus, "0000:17:00.0"
};

struct DeviceList {
  std::string problem;  // why there are none: in CUDA's words; "" where there are
  std::vector<DeviceInfo> devices;
};

// A collective of tensors on devices, as `plan` asks.
struct DevicePathQuery {
  OpSpec request;
  std::string algorithm;  // the planner's; "": none
  std::vector<std::vector<int>> hosts;
  int devices = 1;    // of each host, at least one: its ranks take them in turn
  std::string path;   // Config::device_path
  bool nccl = false;  // each rank is taken to have NCCL; else what this process has
};

struct DevicePathChoice {
  bool by_nccl = false;  // else by way of the host
  std::string why;       // that way
  std::string how;       // it runs there: what follows "by NCCL: "
  std::string because;
  bool host_op = false;  // its part that moves and reduces is the host's op
};

// Raised with every change of what is above and below, down to load_cuda(): a library that an
// earlier build left is then refused.
inline constexpr int kCudaInterface = 3;

// What libringdist_cuda.so exports.
struct CudaLibrary {
  const char* built_for;  // the architectures of the kernels, "80, 90, 100"
  // Starts CUDA in this process: children that it forks from then on cannot use it.
  DeviceList (*devices)();
  // What runs a group's ops on devices. `path`: Config::device_path.
  Result<std::unique_ptr<DeviceRunner>> (*make_runner)(RunnerDelegate& group,
                                                       const std::string& path);
  // Starts nothing. Errors (kNotSupported): what a group would refuse.
  Result<DevicePathChoice> (*route)(const DevicePathQuery& question);
};

// Loads the library once per process. Error (kSystem): it was not built, is of another build, or
// cannot be loaded. Any thread.
Result<const CudaLibrary*> load_cuda();

// As CommunicatorOptions::make_runner: loads the library when it is first called.
Result<std::unique_ptr<DeviceRunner>> make_cuda_runner(RunnerDelegate& group,
                                                       const std::string& path);

}  // namespace ringdist
