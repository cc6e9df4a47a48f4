#pragma once

#include <c10/core/Device.h>

#include <optional>

#include "codec/gradient_memory.h"

namespace ringdist {

// Of the device, by ATen on the current stream; what returns a number waits for that. Any thread;
// raises c10::Error.
GradientMemory& device_memory(c10::Device device);

// None of the host's.
std::optional<c10::Device> device_of(const GradientMemory& memory);

}  // namespace ringdist
