// One op while it is enqueued on a stream: its request, its memory and its stream. All memory is on
// the device, and the host does not read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/buffers.h"
#include "base/error.h"
#include "cuda/api/cuda_api.h"
#include "engine/device/device_runner.h"
#include "plan/compiled_schedule.h"

namespace ringdist::gpu {

// Temporary device memory of one op on one stream. A piece is usable by work that is enqueued after
// take(). It is freed behind the work that the stream holds when this object is destroyed.
class StreamScratch {
 public:
  StreamScratch(CudaApi& cuda, Stream stream) : cuda_(cuda), stream_(stream) {}
  ~StreamScratch() {
    for (void* const piece : pieces_) cuda_.free(piece, stream_);
  }
  StreamScratch(const StreamScratch&) = delete;
  StreamScratch& operator=(const StreamScratch&) = delete;

  // Returns memory that is aligned for any dtype. Returns null for 0 bytes.
  Result<std::byte*> take(size_t bytes) {
    if (bytes == 0) return static_cast<std::byte*>(nullptr);
    pieces_.reserve(pieces_.size() + 1);
    const Result<void*> piece = cuda_.allocate(bytes, stream_);
    if (!piece.ok()) return piece.error();
    pieces_.push_back(piece.value());
    return static_cast<std::byte*>(piece.value());
  }

 private:
  CudaApi& cuda_;
  const Stream stream_;
  std::vector<void*> pieces_;
};

// Access to the values of an op by ranges of its schedule. One thread.
class StreamOp {
 public:
  // All arguments must outlive this object. In `schedule`, each step has one segment.
  StreamOp(const DeviceOp& op, const CompiledSchedule& schedule, int rank, int size, CudaApi& cuda,
           Stream stream)
      : op(op),
        schedule(schedule),
        rank(rank),
        size(size),
        cuda(cuda),
        stream(stream),
        scratch(cuda, stream),
        own_scratch_(dtype_size(op.request.dtype)) {}

  // Allocates and clears the schedule's scratch. Must be called first.
  Error begin();

  // Returns a step of the schedule.
  const CompiledStep& step(int index) const { return schedule.steps[static_cast<size_t>(index)]; }
  size_t bytes(int64_t count) const {
    return static_cast<size_t>(count) * dtype_size(op.request.dtype);
  }
  // Returns the buffer with this id.
  const Buffer& buffer(BufferId id) const;

  // Returns the elements if they are contiguous. Returns null otherwise, or if there are none.
  std::byte* whole(const Range& range) const;
  // Returns the elements as contiguous memory. This is their place, or a copy in scratch. Returns
  // null if there are no elements, and so does place().
  Result<const std::byte*> read(const Range& range);
  // Returns contiguous memory for results. This is their place, or memory for write().
  Result<std::byte*> place(const Range& range);
  // Copies results to their place, unless `from` is that place.
  Error write(const Range& range, const std::byte* from);

  const DeviceOp& op;
  const CompiledSchedule& schedule;
  const int rank;
  const int size;
  CudaApi& cuda;
  const Stream stream;
  StreamScratch scratch;

 private:
  Buffer own_scratch_;  // memory of BufferId::kScratch; empty before begin()
};

}  // namespace ringdist::gpu
