// NamedDevice: the device of a group's calls by name, if they are not on the CPU. A rank uses one
// device, because several calls may be fused into one op. Any thread, without the GIL.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "base/thread_annotations.h"
#include "negotiation/call_content.h"
#include "negotiation/named_call.h"
#include "torch/ops/call.h"

namespace ringdist {

// Checks the device of calls, and has the stream on which their ops run.
class NamedDevice {
 public:
  // `type` is the type of devices that are served.
  explicit NamedDevice(c10::DeviceType type) : type_(type) {}

  // Returns the stream that the op of a call with these tensors has to follow; nothing for the CPU.
  // Throws if the tensors are on several devices, on one that is not served, or on another one than
  // earlier calls.
  std::optional<c10::Stream> stream_of(std::string_view op, at::TensorList inputs,
                                       at::TensorList outputs = {});

  // Returns a function that allocates memory there for joined contributions. Throws as stream_of().
  FillOnDevice filler(c10::DeviceIndex index);

 private:
  // Returns the stream for `device`. Throws if earlier calls used another device.
  c10::Stream stream_of(std::string_view op, c10::Device device);

  const c10::DeviceType type_;
  std::mutex mutex_;
  std::optional<c10::Stream> stream_ RINGDIST_GUARDED_BY(mutex_);
};

// Wraps the requests of a call that this thread has prepared. The wrapped function runs on
// `stream`, which waits for the present work of the thread's current stream. Memory that it
// allocates belongs to `stream`.
using MakeRequests = decltype(NamedCall::requests);
MakeRequests on_stream(const c10::Stream& stream, MakeRequests requests);

}  // namespace ringdist
