// Memory of the device for one op on one stream: each piece is there for what the stream gets after
// it was taken, and goes when the stream has done what it got before the end of this object.
#pragma once

#include <cstddef>
#include <vector>

#include "base/error.h"
#include "cuda/api/cuda_api.h"

namespace ringdist::gpu {

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

}  // namespace ringdist::gpu
