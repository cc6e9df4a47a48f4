// Implements CudaApi with CUDA's runtime library, and with the driver where the runtime lacks a
// call. See CudaApi for the contract of each function. Any thread.
#pragma once

#include "cuda/api/cuda_api.h"

namespace ringdist::gpu {

class CudaRuntime final : public CudaApi {
 public:
  Result<std::array<uint8_t, 16>> identity(int device) override;
  Result<std::string> address(int device) override;
  Result<int> use(int device) override;
  Result<Stream> make_stream() override;
  void free_stream(Stream stream) override;
  Result<Event> make_event() override;
  void free_event(Event event) override;
  Error record(Event event, Stream stream) override;
  Error wait(Stream stream, Event event) override;
  Result<bool> reached(Event event) override;
  Result<bool> captures(Stream stream) override;
  Result<void*> allocate(size_t bytes, Stream stream) override;
  void free(void* memory, Stream stream) override;
  Result<void*> allocate_pinned(size_t bytes) override;
  void free_pinned(void* memory) override;
  Error pin(void* memory, size_t bytes) override;
  void unpin(void* memory) override;
  Error copy(void* to, const void* from, size_t bytes, Stream stream) override;
  Error clear(void* memory, size_t bytes, Stream stream) override;
  Error call(Stream stream, std::function<void()> fn) override;
  Error wait_flag(Stream stream, const uint32_t* flag, uint32_t value) override;
  Error write_flag(Stream stream, uint32_t* flag, uint32_t value) override;
  Error encode(KernelCodec coding, CallSpan<EncodeCall> calls, Stream stream) override;
  Error decode(KernelCodec coding, CallSpan<DecodeCall> calls, Stream stream) override;
  Error reduce(const ReduceCall& call, Stream stream) override;
  Error run(CallSpan<Elements> calls, Stream stream) override;
};

}  // namespace ringdist::gpu
