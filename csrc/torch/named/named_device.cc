#include "torch/named/named_device.h"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "torch/base/devices.h"
#include "torch/base/errors.h"

namespace ringdist {
namespace {

template <typename T>
at::Tensor filled(int64_t count, at::ScalarType dtype, c10::Device device,
                  const ElementBytes& value) {
  T scalar;
  std::memcpy(&scalar, value.data(), sizeof(scalar));
  return at::empty({count}, at::TensorOptions(dtype).device(device)).fill_(at::Scalar(scalar));
}

// Fills memory with integers of that width, which have the bits of `value`. 16 bytes are a complex
// number.
at::Tensor filled(int64_t count, size_t width, c10::Device device, const ElementBytes& value) {
  switch (width) {
    case 1:
      return filled<uint8_t>(count, at::kByte, device, value);
    case 2:
      return filled<int16_t>(count, at::kShort, device, value);
    case 4:
      return filled<int32_t>(count, at::kInt, device, value);
    case 8:
      return filled<int64_t>(count, at::kLong, device, value);
    default:
      return filled<c10::complex<double>>(count, at::kComplexDouble, device, value);
  }
}

}  // namespace

c10::Stream NamedDevice::stream_of(std::string_view op, c10::Device device) {
  std::lock_guard lock(mutex_);
  // One stream serves all calls, because an op of several fused calls follows one stream.
  if (!stream_) stream_ = side_stream(device);
  if (stream_->device() != device)
    throw_error(invalid_argument(op, "its tensors are on " + device.str() +
                                         ", those of calls before on " + stream_->device().str() +
                                         "; a rank's calls by name are on one device"));
  return *stream_;
}

std::optional<c10::Stream> NamedDevice::stream_of(std::string_view op, at::TensorList inputs,
                                                  at::TensorList outputs) {
  const auto is_cpu = [](const at::Tensor& tensor) { return tensor.is_cpu(); };
  if (std::ranges::all_of(inputs, is_cpu) && std::ranges::all_of(outputs, is_cpu))
    return std::nullopt;
  Tensors all = inputs.vec();
  all.insert(all.end(), outputs.begin(), outputs.end());
  return stream_of(op, *value_of(device_of(op, all, type_)));
}

FillOnDevice NamedDevice::filler(c10::DeviceIndex index) {
  return [stream = stream_of("join", c10::Device(type_, index))](
             int64_t count, size_t width, const ElementBytes& value) -> Result<FilledMemory> {
    try {
      const c10::StreamGuard guard(stream);
      const auto memory =
          std::make_shared<at::Tensor>(filled(count, width, stream.device(), value));
      return FilledMemory{static_cast<std::byte*>(memory->data_ptr()), memory,
                          place_on(stream.device())};
    } catch (...) {
      return current_exception_error();
    }
  };
}

MakeRequests on_stream(const c10::Stream& stream, MakeRequests requests) {
  const auto ready = std::make_shared<c10::Event>(stream.device_type());
  ready->record(current_stream(stream.device()));
  return [stream, ready, requests = std::move(requests)](const ExtrasByRank& said) {
    const c10::StreamGuard guard(stream);
    ready->block(stream);
    auto out = requests(said);
    if (out.ok())
      for (OpRequest& request : out.value()) request.device_stream = place_on(stream.device());
    return out;
  };
}

}  // namespace ringdist
