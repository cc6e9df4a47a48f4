// Interface to CUDA for StreamRunner and the paths. CudaRuntime implements it, and tests replace it
// with a fake.
//
// Streams, events and memory are CUDA's own, as void*. Calls that enqueue work return at once. They
// may be captured into a graph unless their comment excludes it. Error kSystem carries CUDA's
// message. Any thread may call.
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

// The calls of CUDA that the product uses.
class CudaApi {
 public:
  virtual ~CudaApi() = default;

  // Returns the UUID of a device. It is the same in all processes, although device numbers differ,
  // so two ranks can detect that they share a device.
  virtual Result<std::array<uint8_t, 16>> identity(int device) = 0;
  // Returns the address of a device on the PCI bus, in the kernel's notation: "0000:1f:00.0".
  virtual Result<std::string> address(int device) = 0;
  // Makes the device current in the calling thread. Returns the device that was current before.
  virtual Result<int> use(int device) = 0;

  // Creates a stream on the current device. It does not synchronize with the default stream, and it
  // has the highest priority.
  virtual Result<Stream> make_stream() = 0;
  virtual void free_stream(Stream stream) = 0;

  virtual Result<Event> make_event() = 0;  // on the current device, without timing
  virtual void free_event(Event event) = 0;
  // Records the event. It is reached when the stream has done all work that it holds at this call.
  virtual Error record(Event event, Stream stream) = 0;
  // Makes later work of the stream wait for the last record() of the event.
  virtual Error wait(Stream stream, Event event) = 0;
  // Returns true if the event has been reached. Must not be captured. May return errors of earlier
  // work on the device.
  virtual Result<bool> reached(Event event) = 0;
  // Returns true if the stream is being captured into a graph.
  virtual Result<bool> captures(Stream stream) = 0;

  // Allocates memory of the device, or frees it, in the order of the stream.
  virtual Result<void*> allocate(size_t bytes, Stream stream) = 0;
  virtual void free(void* memory, Stream stream) = 0;
  // Allocates pinned memory of the host, near the current device, or frees it. Copies access it
  // directly. Both calls may wait for the device.
  virtual Result<void*> allocate_pinned(size_t bytes) = 0;
  virtual void free_pinned(void* memory) = 0;
  // Pins memory of the host that was allocated elsewhere, until unpin().
  virtual Error pin(void* memory, size_t bytes) = 0;
  virtual void unpin(void* memory) = 0;

  // Copies between any two places in memory of the device or pinned memory.
  virtual Error copy(void* to, const void* from, size_t bytes, Stream stream) = 0;
  // Sets `bytes` bytes to 0.
  virtual Error clear(void* memory, size_t bytes, Stream stream) = 0;
  // Calls `fn` on a thread of CUDA when the stream reaches this point. If the device's context has
  // an error by then, `fn` is neither called nor freed. `fn` must be brief and must not call CUDA.
  // Must not be captured.
  virtual Error call(Stream stream, std::function<void()> fn) = 0;
  // Makes later work of the stream wait for `*flag`, which is pinned. The wait ends when `*flag` is
  // between `value` and `value` + 2^31 - 1, modulo 2^32. Must not be captured.
  virtual Error wait_flag(Stream stream, const uint32_t* flag, uint32_t value) = 0;
  // Sets `*flag`, which is pinned, to `value` when the stream reaches this point. Other processors
  // that see the value also see all earlier work of the stream. Must not be captured.
  virtual Error write_flag(Stream stream, uint32_t* flag, uint32_t value) = 0;

  // Launch kernels; see cuda/kernel/kernels.h. Each call enqueues all of `calls` on the stream.
  virtual Error encode(KernelCodec coding, CallSpan<EncodeCall> calls, Stream stream) = 0;
  virtual Error decode(KernelCodec coding, CallSpan<DecodeCall> calls, Stream stream) = 0;
  virtual Error reduce(const ReduceCall& call, Stream stream) = 0;
  virtual Error run(CallSpan<Elements> calls, Stream stream) = 0;
};

// Makes a device current in the calling thread, and restores the previous one when it is destroyed.
class ScopedDevice {
 public:
  ScopedDevice(CudaApi& cuda, int device)
      : cuda_(cuda), device_(device), before_(cuda.use(device)) {}
  ~ScopedDevice() {
    if (before_.ok() && before_.value() != device_) (void)cuda_.use(before_.value());
  }
  ScopedDevice(const ScopedDevice&) = delete;
  ScopedDevice& operator=(const ScopedDevice&) = delete;

  // Returns the error of the switch. After an error, nothing was changed.
  Error error() const { return before_.error(); }

 private:
  CudaApi& cuda_;
  const int device_;
  const Result<int> before_;
};

}  // namespace ringdist::gpu
