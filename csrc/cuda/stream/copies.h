// Copies between a buffer, which may consist of several spans, and contiguous memory. The copies
// are enqueued on a stream.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/buffers.h"
#include "base/error.h"
#include "cuda/api/cuda_api.h"

namespace ringdist::gpu {

// Copies `count` elements of the buffer from `offset` on to contiguous memory at `to`.
inline Error copy_out(CudaApi& cuda, const Buffer& values, int64_t offset, int64_t count,
                      std::byte* to, Stream stream) {
  Error error;
  values.for_each(offset, count, [&](Bytes piece) {
    if (!error) error = cuda.copy(to, piece.data(), piece.size(), stream);
    to += piece.size();
  });
  return error;
}

// Copies contiguous elements into the buffer. Skips spans that are at `from` already.
inline Error copy_in(CudaApi& cuda, const Buffer& values, int64_t offset, int64_t count,
                     const std::byte* from, Stream stream) {
  Error error;
  values.for_each(offset, count, [&](Bytes piece) {
    if (!error && piece.data() != from) error = cuda.copy(piece.data(), from, piece.size(), stream);
    from += piece.size();
  });
  return error;
}

}  // namespace ringdist::gpu
