// Rules that decide how an op runs on a device path. The paths follow them, and the command `plan`
// shows their results. Pure functions with equal results on all ranks; any thread.
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

// Below this size, a turn of the mailboxes costs more than the work of the host's threads.
inline constexpr size_t kLeastByMailboxes = size_t{256} << 10;  // bytes

// Returns true if the op does not reduce, or if NCCL can do its reduction. `has_fp8` is that of
// NcclApi.
bool nccl_reduces(const OpSpec& request, bool has_fp8);
// Returns true if NCCL has a collective with exactly this effect. Other ops run as schedules on
// streams.
bool is_nccls_own(const OpSpec& request, bool has_fp8);

// Returns true if an op on the host path should use mailboxes (host_mailboxes.h). It does so if the
// group has any.
bool suits_mailboxes(const OpSpec& request, int size);

// Returns why the op cannot run as a schedule on a stream. Error kNotSupported: there are more
// ranks than sources of a launch, or 4 GiB of `lossless`.
Error schedule_refusal(const OpSpec& request, int size);
// Returns the algorithm for a schedule on a stream. It is `planned` unless that is null or
// hierarchical. Hierarchical algorithms are excluded, because on a stream only ranks count, not
// hosts.
const Algorithm& stream_algorithm(Collective kind, const Algorithm* planned);

// Capabilities of a rank for ops on devices. Ranks exchange them as raw bytes, because all run the
// same build.

// The NCCL of one rank.
struct NcclInfo {
  int version = 0;      // NcclApi::version(); 0 without NCCL
  std::string problem;  // why there is no NCCL
  // True if ranks may share a device. This needs NCCL 2.30.3 and NCCL_MULTI_RANK_GPU_ENABLE=1.
  bool shares_devices = false;
};

// One rank's device and NCCL. Text is cut to fit.
struct DeviceCapabilities {
  std::array<uint8_t, 16> device;  // CudaApi::identity()
  int32_t nccl_version;
  uint8_t shares_devices;
  std::array<char, 27> address;  // CudaApi::address(), cut to fit
  std::array<char, 96> problem;  // NcclInfo::problem, cut to fit

  // Queries the device for its identity and address.
  static Result<DeviceCapabilities> make(CudaApi& cuda, int device, const NcclInfo& nccl);
  // Makes the capabilities from given values, without a device.
  static DeviceCapabilities of(const std::array<uint8_t, 16>& device, const std::string& address,
                               const NcclInfo& nccl);
};

// Returns why these ranks cannot use NCCL, or "" if they can. They can if each has NCCL, and each
// has a device of its own or may share it. All ranks return the same.
std::string why_not_nccl(const std::vector<int>& ranks,
                         const std::vector<DeviceCapabilities>& offers);

// Explains which path a collective would take, for the commands `info` and `plan`. Needs no device,
// and follows the rules of the paths themselves. Pure; any thread.

// `nccl` stands for each rank's NCCL. Error kNotSupported: NCCL was requested but a rank cannot use
// it, or no schedule supports the op.
Result<DevicePathChoice> explain_path(const DevicePathQuery& question, const NcclInfo& nccl);

}  // namespace ringdist::gpu
