#include "support/fake_cuda.h"

#include <algorithm>
#include <cstring>

#include "support/host_kernels.h"

namespace ringdist {

FakeCuda::~FakeCuda() = default;

void FakeCuda::end_capture() {
  std::lock_guard lock(mutex_);
  capturing_.clear();
  for (auto& [event, state] : events_) state->captured = false;
}

Error FakeCuda::fails(const std::string& call) {
  {
    std::lock_guard lock(mutex_);
    if (fails_.erase(call) == 0) return {};
  }
  return Error(ErrorKind::kSystem, "CUDA: " + call + ": made up by a test");
}

Error FakeCuda::push(const std::string& call, gpu::Stream stream, FakeStreams::Work work) {
  if (Error error = fails(call)) return error;
  if (!is_captured(stream)) streams_.push(stream, std::move(work));
  return {};
}

Result<int> FakeCuda::use(int device) {
  if (Error error = fails("use")) return error;
  return device_.exchange(device);
}

Result<gpu::Stream> FakeCuda::make_stream() {
  if (Error error = fails("make_stream")) return error;
  return streams_.make();
}

Result<gpu::Event> FakeCuda::make_event() {
  if (Error error = fails("make_event")) return error;
  auto made = std::make_shared<Event>();
  gpu::Event event = made.get();
  std::lock_guard lock(mutex_);
  events_[event] = std::move(made);
  return event;
}

void FakeCuda::free_event(gpu::Event event) {
  std::lock_guard lock(mutex_);
  events_.erase(event);
}

Error FakeCuda::record(gpu::Event event, gpu::Stream stream) {
  const auto state = find(event);
  state->captured = is_captured(stream);
  const uint64_t number = ++state->recorded;
  return push("record", stream,
              {{}, [state, number] { state->reached = std::max(state->reached.load(), number); }});
}

Error FakeCuda::wait(gpu::Stream stream, gpu::Event event) {
  const auto state = find(event);
  if (state->captured) begin_capture(stream);
  const uint64_t number = state->recorded;
  return push("wait", stream, {[state, number] { return state->reached >= number; }, {}});
}

Result<bool> FakeCuda::reached(gpu::Event event) {
  if (Error error = fails("reached")) return error;
  const auto state = find(event);
  if (state->captured) return Error(ErrorKind::kSystem, "CUDA: an event of a capture is asked for");
  return state->reached.load() == state->recorded.load();
}

Result<void*> FakeCuda::make_memory(size_t bytes) {
  std::unique_ptr<std::byte[]> memory(new std::byte[bytes]);
  std::memset(memory.get(), 0xff, bytes);
  void* const at = memory.get();
  std::lock_guard lock(mutex_);
  memory_[at] = std::move(memory);
  return at;
}

Result<void*> FakeCuda::allocate(size_t bytes, gpu::Stream) {
  if (Error error = fails("allocate")) return error;
  return make_memory(bytes);
}

void FakeCuda::free(void* memory, gpu::Stream stream) {
  if (is_captured(stream)) return forget(memory);
  streams_.push(stream, {{}, [this, memory] { forget(memory); }});
}

Result<void*> FakeCuda::allocate_pinned(size_t bytes) {
  if (Error error = fails("allocate_pinned")) return error;
  return make_memory(bytes);
}

Error FakeCuda::copy(void* to, const void* from, size_t bytes, gpu::Stream stream) {
  return push("copy", stream, {{}, [=] { std::memmove(to, from, bytes); }});
}

Error FakeCuda::clear(void* memory, size_t bytes, gpu::Stream stream) {
  return push("clear", stream, {{}, [=] { std::memset(memory, 0, bytes); }});
}

Error FakeCuda::call(gpu::Stream stream, std::function<void()> fn) {
  if (is_captured(stream))
    return Error(ErrorKind::kSystem, "CUDA: a function of the host in a capture");
  return push("call", stream, {{}, std::move(fn)});
}

Error FakeCuda::wait_flag(gpu::Stream stream, const uint32_t* flag, uint32_t value) {
  if (is_captured(stream))
    return Error(ErrorKind::kSystem, "CUDA: a wait for the host in a capture");
  const auto is_told = [=] {
    const uint32_t now = std::atomic_ref(const_cast<uint32_t&>(*flag)).load();
    return static_cast<int32_t>(now - value) >= 0;
  };
  return push("hold", stream, {is_told, {}});
}

Error FakeCuda::write_flag(gpu::Stream stream, uint32_t* flag, uint32_t value) {
  if (is_captured(stream)) return Error(ErrorKind::kSystem, "CUDA: a word to others in a capture");
  return push("tell", stream, {{}, [=] { std::atomic_ref(*flag).store(value); }});
}

// A launch copies its arguments, so the caller's span may end before the stream runs.
template <typename Call>
static std::vector<Call> copy_of(gpu::CallSpan<Call> calls) {
  return {calls.begin(), calls.end()};
}

Error FakeCuda::encode(gpu::KernelCodec coding, gpu::CallSpan<gpu::EncodeCall> calls,
                       gpu::Stream stream) {
  ++launches_;
  return push("encode", stream,
              {{}, [coding, all = copy_of(calls)] { host_kernels::encode(coding, all); }});
}

Error FakeCuda::decode(gpu::KernelCodec coding, gpu::CallSpan<gpu::DecodeCall> calls,
                       gpu::Stream stream) {
  ++launches_;
  return push("decode", stream,
              {{}, [coding, all = copy_of(calls)] { host_kernels::decode(coding, all); }});
}

Error FakeCuda::reduce(const gpu::ReduceCall& call, gpu::Stream stream) {
  ++launches_;
  return push("reduce", stream, {{}, [=] { host_kernels::reduce(call); }});
}

Error FakeCuda::run(gpu::CallSpan<gpu::Elements> calls, gpu::Stream stream) {
  ++launches_;
  return push("run", stream, {{}, [all = copy_of(calls)] { host_kernels::run(all); }});
}

}  // namespace ringdist
