// The device that a group's calls by name are on, where they are not on the CPU: one for this rank,
// as several calls may travel as one op. Any thread, without the GIL.
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

class NamedDevice {
 public:
  // `type`: of devices that are served.
  explicit NamedDevice(c10::DeviceType type) : type_(type) {}

  // Behind what the op of a call comes that has these tensors: a stream of the group's, none on the
  // CPU. Throws where they are on several devices, on one that is not served, or on another one
  // than calls before.
  std::optional<c10::Stream> stream_of(std::string_view op, at::TensorList inputs,
                                       at::TensorList outputs = {});

  // Memory there, for a rank that joins. Throws as stream_of().
  FillOnDevice filler(c10::DeviceIndex index);

 private:
  c10::Stream stream_of(std::string_view op, c10::Device device);

  const c10::DeviceType type_;
  std::mutex mutex_;
  std::optional<c10::Stream> stream_ RINGDIST_GUARDED_BY(mutex_);
};

// The requests of a call that this thread has prepared: what they read is there when the thread's
// current stream has come here, and what they allocate is of `stream`.
using MakeRequests = decltype(NamedCall::requests);
MakeRequests on_stream(const c10::Stream& stream, MakeRequests requests);

}  // namespace ringdist
