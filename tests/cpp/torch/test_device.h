// A fake PyTorch device of type PrivateUse1. Its memory is host memory, its streams are
// support/fake_streams.h, and work runs when the test lets it. Each event is one millisecond after
// the previous one.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <vector>

#include "support/fake_streams.h"

namespace ringdist::test {

inline constexpr c10::DeviceType kTestDevice = c10::DeviceType::PrivateUse1;

// Returns the streams of the running test.
FakeStreams& device_streams();
// Resets the device: no events, and only the default stream.
void reset_device();
// Returns the native handle of this thread's current stream.
void* current_device_stream();

// Returns a device tensor over `values`, which must outlive it.
at::Tensor on_device(std::vector<float>& values, at::IntArrayRef sizes);

}  // namespace ringdist::test
