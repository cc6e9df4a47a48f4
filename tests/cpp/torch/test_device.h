// A device of PyTorch's that is not there, of the type that it leaves to others: memory is the
// host's, streams are support/fake_streams.h, and work runs when the test says so. Of its events
// each comes a millisecond after the one before.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <vector>

#include "support/fake_streams.h"

namespace ringdist::test {

inline constexpr c10::DeviceType kTestDevice = c10::DeviceType::PrivateUse1;

// Of the test that runs.
FakeStreams& device_streams();
// Begins with none, and no stream but the default one.
void reset_device();
// What c10 calls the native handle of this thread's stream.
void* current_device_stream();

// On the device, of memory that outlives it.
at::Tensor on_device(std::vector<float>& values, at::IntArrayRef sizes);

}  // namespace ringdist::test
