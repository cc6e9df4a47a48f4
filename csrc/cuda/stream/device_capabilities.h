// What a rank has for a group's ops on devices, as it goes to the others, which run the same build,
// and what they make of it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "cuda/api/cuda_api.h"

namespace ringdist::gpu {

// What a rank has of NCCL.
struct NcclInfo {
  int version = 0;      // as NcclApi::version(); 0: none
  std::string problem;  // why there is none
  // Ranks may share a device with it: NCCL_MULTI_RANK_GPU_ENABLE is set, from 2.30.3 on.
  bool shares_devices = false;
};

struct DeviceCapabilities {
  std::array<uint8_t, 16> device;  // CudaApi::identity()
  int32_t nccl_version;
  uint8_t shares_devices;
  std::array<char, 27> address;  // of the device, CudaApi::address(); as much as there is room for
  std::array<char, 96> problem;  // the same

  static Result<DeviceCapabilities> make(CudaApi& cuda, int device, const NcclInfo& nccl);
  static DeviceCapabilities of(const std::array<uint8_t, 16>& device, const std::string& address,
                               const NcclInfo& nccl);
};

// Why these ranks, which offer that, cannot go by NCCL; "" if they can: each has NCCL and a device
// of its own, or may share it. All come to the same.
std::string why_not_nccl(const std::vector<int>& ranks,
                         const std::vector<DeviceCapabilities>& offers);

}  // namespace ringdist::gpu
