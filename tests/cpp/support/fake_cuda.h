// CUDA as the runner of streams sees it, without a device: its memory is the host's, and streams do
// what they hold when the test lets them (support/fake_streams.h). Memory that a stream frees is
// gone when it gets there, and fresh memory holds NaNs, so that what runs too early or too late
// shows.
//
// One for all ranks and devices of a test. Any thread; call()'s functions run in
// FakeStreams::progress().
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

  // The next call of that name ends with an Error.
  void fail_next(const std::string& call) {
    std::lock_guard lock(mutex_);
    fails_.insert(call);
  }
  // What is put on the stream, and on those that come to depend on it, is captured: kept until
  // end_capture(), which forgets it. What may not be captured fails.
  void begin_capture(void* stream) {
    std::lock_guard lock(mutex_);
    capturing_.insert(stream);
  }
  void end_capture();
  // Calls that would launch kernels.
  int launches() const { return launches_; }
  // Memory and events that are still there.
  size_t alive() const {
    std::lock_guard lock(mutex_);
    return memory_.size() + events_.size();
  }

  Result<std::array<uint8_t, 16>> identity(int device) override {
    return std::array<uint8_t, 16>{static_cast<uint8_t>(device)};
  }
  Result<std::string> address(int device) override {
    return "fake:" + std::to_string(device);  // no machine has one there
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
  // Puts it there, or keeps it from there while that is captured.
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
