// Fake of the CUDA API that the stream runner uses. It needs no device: its memory is host memory,
// and its streams execute when the test lets them (support/fake_streams.h). Memory freed on a
// stream is released when the stream gets there, and new memory is filled with NaNs. So work that
// runs too early or too late changes the results.
//
// One object serves all ranks and devices of a test. Thread-safe; functions passed to call() run
// inside FakeStreams::progress().
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "cuda/api/cuda_api.h"
#include "support/fake_streams.h"

namespace ringdist {

class FakeCuda final : public gpu::CudaApi {
 public:
  explicit FakeCuda(FakeStreams& streams) : streams_(streams) {}
  ~FakeCuda() override;

  // Makes the next call with the given name return an Error.
  void fail_next(const std::string& call) {
    std::lock_guard lock(mutex_);
    fails_.insert(call);
  }
  // Begins a capture: work pushed to `stream`, and to streams that come to depend on it, is
  // recorded until end_capture(), which discards it. Calls that CUDA forbids during a capture
  // fail.
  void begin_capture(void* stream) {
    std::lock_guard lock(mutex_);
    capturing_.insert(stream);
  }
  void end_capture();
  // Returns the number of calls that would launch kernels.
  int launches() const { return launches_; }
  // Returns the number of allocations and events that have not been freed.
  size_t alive() const {
    std::lock_guard lock(mutex_);
    return memory_.size() + events_.size();
  }

  Result<std::array<uint8_t, 16>> identity(int device) override {
    return std::array<uint8_t, 16>{static_cast<uint8_t>(device)};
  }
  Result<std::string> address(int device) override {
    return "fake:" + std::to_string(device);  // no machine has a device at such an address
  }
  Result<int> use(int device) override;
  Result<gpu::Stream> make_stream() override;
  void free_stream(gpu::Stream) override {}
  Result<gpu::Event> make_event() override;
  void free_event(gpu::Event event) override;
  Error record(gpu::Event event, gpu::Stream stream) override;
  Error wait(gpu::Stream stream, gpu::Event event) override;
  Result<bool> reached(gpu::Event event) override;
  Result<bool> captures(gpu::Stream stream) override { return is_captured(stream); }
  Result<void*> allocate(size_t bytes, gpu::Stream stream) override;
  void free(void* memory, gpu::Stream stream) override;
  Result<void*> allocate_pinned(size_t bytes) override;
  void free_pinned(void* memory) override { forget(memory); }
  Error pin(void*, size_t) override { return fails("pin"); }
  void unpin(void*) override {}
  Error copy(void* to, const void* from, size_t bytes, gpu::Stream stream) override;
  Error clear(void* memory, size_t bytes, gpu::Stream stream) override;
  Error call(gpu::Stream stream, std::function<void()> fn) override;
  Error wait_flag(gpu::Stream stream, const uint32_t* flag, uint32_t value) override;
  Error write_flag(gpu::Stream stream, uint32_t* flag, uint32_t value) override;
  Error encode(gpu::KernelCodec coding, gpu::CallSpan<gpu::EncodeCall> calls,
               gpu::Stream stream) override;
  Error decode(gpu::KernelCodec coding, gpu::CallSpan<gpu::DecodeCall> calls,
               gpu::Stream stream) override;
  Error reduce(const gpu::ReduceCall& call, gpu::Stream stream) override;
  Error run(gpu::CallSpan<gpu::Elements> calls, gpu::Stream stream) override;

 private:
  struct Event {
    std::atomic<uint64_t> recorded{0};
    std::atomic<uint64_t> reached{0};
    std::atomic<bool> captured{false};
  };

  Error fails(const std::string& call);
  // Enqueues work on the stream, or records it if the stream is being captured.
  Error push(const std::string& call, gpu::Stream stream, FakeStreams::Work work);
  Result<void*> make_memory(size_t bytes);
  void forget(void* memory) {
    std::lock_guard lock(mutex_);
    memory_.erase(memory);
  }
  bool is_captured(gpu::Stream stream) const {
    std::lock_guard lock(mutex_);
    return capturing_.contains(stream);
  }
  std::shared_ptr<Event> find(gpu::Event event) const {
    std::lock_guard lock(mutex_);
    return events_.at(event);
  }

  FakeStreams& streams_;
  mutable std::mutex mutex_;
  std::map<void*, std::unique_ptr<std::byte[]>> memory_;
  std::map<void*, std::shared_ptr<Event>> events_;
  std::set<void*> capturing_;
  std::set<std::string> fails_;
  std::atomic<int> device_{0};
  std::atomic<int> launches_{0};
};

}  // namespace ringdist
