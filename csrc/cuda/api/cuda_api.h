// What the runner of streams asks of CUDA: the seam that tests fake.
//
// Streams, events and memory are CUDA's own, as void*. Calls that enqueue return at once; unless
// one says otherwise it may be captured into a graph. Errors (kSystem): CUDA's, with its words.
// Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "base/error.h"
#include "cuda/kernel/calls.h"
#include "cuda/kernel/elements.h"

namespace ringdist::gpu {

using Stream = void*;  // cudaStream_t
using Event = void*;   // cudaEvent_t

class CudaApi {
 public:
  virtual ~CudaApi() = default;

  // Which device it is, whatever number it has in this process: the same for two ranks that share
  // it.
  virtual Result<std::array<uint8_t, 16>> identity(int device) = 0;
  // Where it is on the PCI bus, as the kernel writes it: "0000:1f:00.0".
  virtual Result<std::string> address(int device) = 0;
  // The device is the calling thread's from now on; returns the one that was.
  virtual Result<int> use(int device) = 0;

  // Of the current device, apart from its default stream and before others.
  virtual Result<Stream> make_stream() = 0;
  virtual void free_stream(Stream stream) = 0;

  virtual Result<Event> make_event() = 0;  // without timing
  virtual void free_event(Event event) = 0;
  // The event is reached when the stream has done what it holds now.
  virtual Error record(Event event, Stream stream) = 0;
  // What the stream gets from now on comes after the last record() of the event.
  virtual Error wait(Stream stream, Event event) = 0;
  // Not captured. Errors are also those of earlier work on the device.
  virtual Result<bool> reached(Event event) = 0;
  virtual Result<bool> captures(Stream stream) = 0;

  // Of the device's memory, in the order of the stream.
  virtual Result<void*> allocate(size_t bytes, Stream stream) = 0;
  virtual void free(void* memory, Stream stream) = 0;
  // Of the host's, near the current device, which copies reach without a detour. They may wait for
  // the device.
  virtual Result<void*> allocate_pinned(size_t bytes) = 0;
  virtual void free_pinned(void* memory) = 0;
  // Memory of the host that others made becomes such, until unpin().
  virtual Error pin(void* memory, size_t bytes) = 0;
  virtual void unpin(void* memory) = 0;

  // Between any two of the device's and pinned memory.
  virtual Error copy(void* to, const void* from, size_t bytes, Stream stream) = 0;
  // Sets `bytes` bytes to 0.
  virtual Error clear(void* memory, size_t bytes, Stream stream) = 0;
  // Called when the stream gets there, by a thread of CUDA's: brief, asks nothing of CUDA. Also
  // where earlier work has failed. Not captured.
  virtual Error call(Stream stream, std::function<void()> fn) = 0;
  // What the stream gets from now on waits until `*flag`, pinned, is `value` or up to 2^31 - 1 more
  // than it, modulo 2^32. Not captured.
  virtual Error wait_flag(Stream stream, const uint32_t* flag, uint32_t value) = 0;
  // `*flag`, pinned, becomes `value` when the stream gets there; what it did before is seen by
  // whoever sees that. Not captured.
  virtual Error write_flag(Stream stream, uint32_t* flag, uint32_t value) = 0;

  // cuda/kernel/kernels.h
  virtual Error encode(KernelCodec coding, CallSpan<EncodeCall> calls, Stream stream) = 0;
  virtual Error decode(KernelCodec coding, CallSpan<DecodeCall> calls, Stream stream) = 0;
  virtual Error reduce(const ReduceCall& call, Stream stream) = 0;
  virtual Error run(CallSpan<Elements> calls, Stream stream) = 0;
};

// Makes a device the calling thread's, until the end of this object.
class ScopedDevice {
 public:
  ScopedDevice(CudaApi& cuda, int device)
      : cuda_(cuda), device_(device), before_(cuda.use(device)) {}
  ~ScopedDevice() {
    if (before_.ok() && before_.value() != device_) (void)cuda_.use(before_.value());
  }
  ScopedDevice(const ScopedDevice&) = delete;
  ScopedDevice& operator=(const ScopedDevice&) = delete;

  Error error() const { return before_.error(); }

 private:
  CudaApi& cuda_;
  const int device_;
  const Result<int> before_;
};

}  // namespace ringdist::gpu
