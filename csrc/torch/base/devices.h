// Streams of devices by c10's device-generic interface: nothing here needs a PyTorch that was built
// for CUDA. Any thread.
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

// The device that all of them are on; none for the CPU, and for no tensors. `served`: of devices
// besides that. Errors: kInvalidArgument, they are on several, which it names; kNotSupported, on
// one of another type.
Result<std::optional<c10::Device>> device_of(std::string_view op,
                                             const std::vector<at::Tensor>& tensors,
                                             c10::DeviceType served);

// Where ops of this thread run on a device now.
c10::Stream current_stream(c10::Device device);
DeviceStream place_on(c10::Device device);
// One of those that PyTorch keeps for such work.
c10::Stream side_stream(c10::Device device);

// What `stream` does with the memory of a tensor comes before anything that gets it next.
void use_on(const at::Tensor& tensor, const c10::Stream& stream);

}  // namespace ringdist
