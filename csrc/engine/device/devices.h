// Interface to libringdist_cuda.so, which contains all code for CUDA. It is loaded when a device is
// first needed, so a process without devices maps no CUDA library.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/device/device_runner.h"
#include "plan/op_spec.h"

namespace ringdist {

// Properties of a CUDA device.
struct DeviceInfo {
  std::string name;        // "NVIDIA H100 80GB HBM3"
  std::string capability;  // "9.0"
  int64_t bytes = 0;       // size of its memory
  std::string address;     // PCI address, "0000:17:00.0"
};

// The devices of this host.
struct DeviceList {
  std::string problem;  // CUDA's reason why there are none; "" if there are
  std::vector<DeviceInfo> devices;
};

// A collective on devices for which `plan` (the command-line tool) wants to see the path.
struct DevicePathQuery {
  OpSpec request;
  std::string algorithm;  // name of the planned algorithm, or ""
  std::vector<std::vector<int>> hosts;
  int devices = 1;    // devices per host, at least one; its ranks take them in turn
  std::string path;   // Config::device_path
  bool nccl = false;  // assume NCCL on each rank; otherwise use the capabilities of this process
};

// The path that a collective on devices takes.
struct DevicePathChoice {
  bool by_nccl = false;  // otherwise through the host
  std::string why;       // reason for the path
  std::string how;       // how it runs there: the text after "by NCCL: "
  std::string because;   // reason for `how`
  bool host_op = false;  // the host op moves and reduces the data
};

// Version of this interface. Raise it with every change of the types in this file and in those that
// it includes, up to load_cuda(). A library of an earlier build is then refused.
inline constexpr int kCudaInterface = 3;

// The functions that libringdist_cuda.so exports.
struct CudaLibrary {
  const char* built_for;  // architectures of the kernels, "80, 90, 100"
  // Returns the devices. Initializes CUDA in this process; children that it forks later cannot use
  // CUDA.
  DeviceList (*devices)();
  // Makes the device runner of a group. `path` is Config::device_path.
  Result<std::unique_ptr<DeviceRunner>> (*make_runner)(RunnerDelegate& group,
                                                       const std::string& path);
  // Chooses a path without starting anything. Error: kNotSupported if a group would refuse the op.
  Result<DevicePathChoice> (*route)(const DevicePathQuery& question);
};

// Loads the library, once per process. Fails with kSystem if it was not built, belongs to another
// build or cannot be loaded. Any thread.
Result<const CudaLibrary*> load_cuda();

// Makes a device runner, as CommunicatorOptions::make_runner. Loads the library at the first call.
// `path` is Config::device_path. Errors: those of load_cuda() and of CudaLibrary::make_runner.
Result<std::unique_ptr<DeviceRunner>> make_cuda_runner(RunnerDelegate& group,
                                                       const std::string& path);

}  // namespace ringdist
