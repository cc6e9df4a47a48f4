// By what an op runs on its way, NCCL's or the host's: what the ways go by, and `plan` shows. Pure,
// alike on all ranks; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "algorithm/schedule.h"
#include "base/error.h"
#include "cuda/api/cuda_api.h"
#include "engine/device/devices.h"
#include "plan/op_spec.h"

namespace ringdist::gpu {

// Below, a turn of the host's memory is dearer than what its threads do.
inline constexpr size_t kLeastByMailboxes = size_t{256} << 10;  // bytes

// NCCL reduces so, where the op reduces at all. `has_fp8`: NcclApi's.
bool nccl_reduces(const OpSpec& request, bool has_fp8);
// NCCL has a collective that does just that; other collectives are schedules on streams.
bool is_nccls_own(const OpSpec& request, bool has_fp8);

// By way of the host: ranks leave it in each other's boxes, where the group has them
// (host_mailboxes.h).
bool suits_mailboxes(const OpSpec& request, int size);

// Why no schedule on a stream does it: kNotSupported, more ranks than a launch takes sources,
// 4 GiB by `lossless`.
Error schedule_refusal(const OpSpec& request, int size);
// That of a schedule on a stream: the planner's - null: none - but for those by hosts, since a
// stream sees ranks, no hosts.
const Algorithm& stream_algorithm(Collective kind, const Algorithm* planned);

// What a rank has for a group's ops on devices, as it goes to the others, which run the same build,
// and what they make of it.

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

// How a collective of tensors on devices would go, without any device: for `info` and `plan`. By
// the rules that the ways themselves go by. Pure; any thread.

// `nccl`: what each rank has. Error (kNotSupported): NCCL is wanted, and a rank cannot; a codec
// without kernels.
Result<DevicePathChoice> explain_path(const DevicePathQuery& question, const NcclInfo& nccl);

}  // namespace ringdist::gpu
