#include "torch/test_device.h"

#include <ATen/native/TensorFactories.h>
#include <torch/library.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace ringdist::test {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;
using c10::StreamId;

struct State {
  FakeStreams streams;
  std::mutex mutex;
  std::vector<void*> handles{streams.make()};  // by StreamId; 0 is the default stream
};

std::unique_ptr<State>& state() {
  static auto* const kState = new std::unique_ptr<State>(std::make_unique<State>());
  return *kState;
}

thread_local StreamId current = 0;
std::atomic<int64_t> turns = 0;

void* handle_of(StreamId id) {
  std::lock_guard lock(state()->mutex);
  return state()->handles.at(static_cast<size_t>(id));
}

Stream stream_of(StreamId id) { return Stream(Stream::UNSAFE, Device(kTestDevice, 0), id); }

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kTestDevice; }
  Device exchangeDevice(Device) const override { return Device(kTestDevice, 0); }
  Device getDevice() const override { return Device(kTestDevice, 0); }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  DeviceIndex deviceCount() const noexcept override { return 1; }
  Stream getStream(Device) const override { return stream_of(current); }
  Stream getDefaultStream(Device) const override { return stream_of(0); }
  Stream getStreamFromGlobalPool(Device, bool) const override { return new_stream(); }
  Stream getNewStream(Device, int) const override { return new_stream(); }
  Stream exchangeStream(Stream stream) const override {
    return stream_of(std::exchange(current, stream.id()));
  }
  void* getStreamNativeHandle(const Stream stream) const override { return handle_of(stream.id()); }
  void recordDataPtrOnStream(const c10::DataPtr&, const Stream&) const override {}

  // Position of an event in the order in which all events were reached, or 0 before.
  using Reached = std::shared_ptr<std::atomic<int64_t>>;
  void record(void** event, const Stream& stream, const DeviceIndex,
              const c10::EventFlag) const override {
    const Reached reached = std::make_shared<std::atomic<int64_t>>(0);
    destroyEvent(*event, 0);
    *event = new Reached(reached);
    device_streams().push(handle_of(stream.id()), {{}, [reached] { *reached = ++turns; }});
  }
  void block(void* event, const Stream& stream) const override {
    device_streams().push(handle_of(stream.id()),
                          {[reached = *static_cast<Reached*>(event)] { return *reached > 0; }, {}});
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || **static_cast<Reached*>(event) > 0;
  }
  void synchronizeEvent(void* event) const override {
    while (!queryEvent(event)) device_streams().progress();
  }
  double elapsedTime(void* from, void* to, const DeviceIndex) const override {
    return static_cast<double>(**static_cast<Reached*>(to) - **static_cast<Reached*>(from));
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    delete static_cast<Reached*>(event);
  }

 private:
  static Stream new_stream() {
    void* const made = device_streams().make();
    std::lock_guard lock(state()->mutex);
    state()->handles.push_back(made);
    return stream_of(static_cast<StreamId>(state()->handles.size()) - 1);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

// Returns a CPU tensor over the same memory.
at::Tensor host_view(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       at::TensorOptions(tensor.scalar_type()));
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::optional<at::ScalarType> dtype) {
  const at::Tensor memory = at::empty_strided(sizes, strides, at::TensorOptions(*dtype));
  return at::for_blob(memory.data_ptr(), sizes)
      .strides(strides)
      .deleter([memory](void*) {})
      .options(at::TensorOptions(*dtype).device(kTestDevice, 0))
      .target_device(Device(kTestDevice, 0))
      .make_tensor();
}

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool) {
  device_streams().push(current_device_stream(),
                        {{}, [to, from] { host_view(to).copy_(host_view(from)); }});
  return to;
}

at::Tensor& multiply(at::Tensor& values, const at::Scalar& factor) {
  device_streams().push(current_device_stream(),
                        {{}, [values, factor] { host_view(values).mul_(factor); }});
  return values;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format",
         [](at::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
            std::optional<Device>, std::optional<bool>, std::optional<at::MemoryFormat>) {
           return empty_strided(sizes, c10::contiguous_strides(sizes), dtype);
         });
  m.impl("empty_strided",
         [](at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> dtype,
            std::optional<at::Layout>, std::optional<Device>,
            std::optional<bool>) { return empty_strided(sizes, strides, dtype); });
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("copy_", &copy);
  m.impl("mul_.Scalar", &multiply);
}

}  // namespace

FakeStreams& device_streams() { return state()->streams; }

void reset_device() {
  current = 0;
  state() = std::make_unique<State>();
}

void* current_device_stream() { return handle_of(current); }

at::Tensor on_device(std::vector<float>& values, at::IntArrayRef sizes) {
  return at::for_blob(values.data(), sizes)
      .options(at::TensorOptions(at::kFloat).device(kTestDevice, 0))
      .target_device(Device(kTestDevice, 0))
      .make_tensor();
}

}  // namespace ringdist::test
