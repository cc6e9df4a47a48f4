#include "torch/base/devices.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <string>

#include "torch/base/tensors.h"

namespace ringdist {

// The CPU needs no stream, so it is returned as no device.
Result<std::optional<c10::Device>> device_of(std::string_view op,
                                             const std::vector<at::Tensor>& tensors,
                                             c10::DeviceType served) {
  if (tensors.empty()) return std::optional<c10::Device>();
  const c10::Device first = tensors[0].device();
  for (const at::Tensor& tensor : tensors)
    if (tensor.device() != first)
      return invalid_argument(op, "its tensors are on several devices, " + first.str() + " and " +
                                      tensor.device().str() + "; all must be on one");
  if (first.is_cpu()) return std::optional<c10::Device>();
  if (first.type() != served)
    return Error(ErrorKind::kNotSupported,
                 "ringdist: " + std::string(op) + ": its tensors are on device " + first.str() +
                     "; supported: cpu, " + c10::DeviceTypeName(served, /*lower_case=*/true));
  return std::optional(first);
}

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

DeviceStream place_on(c10::Device device) {
  return {device.index(), current_stream(device).native_handle()};
}

c10::Stream side_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type())
      .getStreamFromGlobalPool(device, /*isHighPriority=*/true);
}

void use_on(const at::Tensor& tensor, const c10::Stream& stream) {
  if (!tensor.has_storage()) return;
  c10::impl::VirtualGuardImpl(stream.device_type())
      .recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

}  // namespace ringdist
