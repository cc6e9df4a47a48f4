// How a collective of tensors on devices would go, without any device: for `info` and `plan`. By
// the rules that the ways themselves go by. Pure; any thread.
#pragma once

#include "cuda/stream/device_capabilities.h"
#include "engine/devices.h"

namespace ringdist::gpu {

// `nccl`: what each rank has. Error (kNotSupported): NCCL is wanted, and a rank cannot; a codec
// without kernels.
Result<DevicePathChoice> explain_path(const DevicePathQuery& question, const NcclInfo& nccl);

}  // namespace ringdist::gpu
