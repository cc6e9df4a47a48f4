// Devices and streams, by c10's device-generic interface. Nothing here needs a PyTorch that was
// built for CUDA. Any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/device/device_runner.h"

namespace ringdist {

// Returns the device that all tensors are on; nothing for the CPU, and for no tensors. `served` is
// the type of devices that are allowed besides the CPU. Fails with kInvalidArgument if the tensors
// are on several devices, and with kNotSupported if they are on one of another type.
Result<std::optional<c10::Device>> device_of(std::string_view op,
                                             const std::vector<at::Tensor>& tensors,
                                             c10::DeviceType served);

// Both return the stream on which operations of this thread run on a device at present.
c10::Stream current_stream(c10::Device device);
DeviceStream place_on(c10::Device device);
// Returns one of the high-priority streams that PyTorch keeps in a pool. Other callers may get the
// same one.
c10::Stream side_stream(c10::Device device);

// Delays reuse of a tensor's memory until the work that `stream` has at present is done. Needed if
// the stream is not the one on which the tensor was allocated.
void use_on(const at::Tensor& tensor, const c10::Stream& stream);

}  // namespace ringdist
