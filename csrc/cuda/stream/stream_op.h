// One op while it is put on a stream: what it is, where its values lie, and the way to the device.
// Memory of the device, of which nothing is read here.
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

// Memory of the device for one op on one stream: each piece is there for what the stream gets after
// it was taken, and goes when the stream has done what it got before the end of this object.
class StreamScratch {
 public:
  StreamScratch(CudaApi& cuda, Stream stream) : cuda_(cuda), stream_(stream) {}
  ~StreamScratch() {
    for (void* const piece : pieces_) cuda_.free(piece, stream_);
  }
  StreamScratch(const StreamScratch&) = delete;
  StreamScratch& operator=(const StreamScratch&) = delete;

  // Aligned for any dtype. No memory for 0 bytes: null.
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

class StreamOp {
 public:
  // All outlive it. `schedule`: each step one segment.
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

  // Before all else.
  Error begin();

  const CompiledStep& step(int index) const { return schedule.steps[static_cast<size_t>(index)]; }
  size_t bytes(int64_t count) const {
    return static_cast<size_t>(count) * dtype_size(op.request.dtype);
  }
  const Buffer& buffer(BufferId id) const;

  // The elements where they lie, if that is in one piece, else null; null, too, if there are none.
  std::byte* whole(const Range& range) const;
  // In one piece: where they lie, or a copy.
  Result<const std::byte*> read(const Range& range);
  // In one piece: where they lie, or memory from which write() puts them there.
  Result<std::byte*> place(const Range& range);
  // Puts elements where they belong, if they do not lie there.
  Error write(const Range& range, const std::byte* from);

  const DeviceOp& op;
  const CompiledSchedule& schedule;
  const int rank;
  const int size;
  CudaApi& cuda;
  const Stream stream;
  StreamScratch scratch;

 private:
  Buffer own_scratch_;
};

}  // namespace ringdist::gpu
