// Elements and chunks of the codec `lossless` for the kernels (codec/lossless.spec.md).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "cuda/kernel/block_at.h"
#include "cuda/kernel/block_values.h"
#include "cuda/warp/device.h"
#include "kernel/half.h"
#include "kernel/lossless_chunk.h"
#include "kernel/split_float.h"

namespace ringdist::gpu {

// Stored types of values. narrow_sum() is for a value plus a residual, and makes its NaNs
// canonical.
struct StoredFloat32 : SplitFloat32 {
  static constexpr Bits narrow_sum(float x) {
    return narrow(x == x ? x : std::numeric_limits<float>::quiet_NaN());
  }
  static constexpr Bits narrow(float x) { return float_bits(x); }
  static constexpr float widen(Bits x) { return std::bit_cast<float>(x); }
};
struct StoredBFloat16 : SplitBFloat16 {
  static constexpr Bits narrow(float x) { return float_to_bfloat(x); }
  static constexpr Bits narrow_sum(float x) { return narrow(x); }
  static constexpr float widen(Bits x) { return bfloat_to_float(x); }
};
struct StoredFloat16 : SplitFloat16 {
  static constexpr Bits narrow(float x) { return float_to_half(x); }
  static constexpr Bits narrow_sum(float x) { return narrow(x); }
  static constexpr float widen(Bits x) { return half_to_float(x); }
};

// Return the number of chunks, a chunk and a run of it, for `all` elements.
constexpr int64_t lossless_chunks(int64_t all) { return blocks(all, LosslessChunk::kElements); }

template <typename Stored>
constexpr LosslessChunk lossless_chunk(int64_t index, int64_t all) {
  const int64_t left = all - index * LosslessChunk::kElements;
  return {static_cast<int>(left < LosslessChunk::kElements ? left : LosslessChunk::kElements),
          Stored::kRest + 1};
}

constexpr BlockAt lossless_run(const LosslessChunk& chunk, int64_t index, int run) {
  return {index * LosslessChunk::kElements + run * LosslessChunk::kRun, chunk.elements_of(run)};
}

inline constexpr int kRunParts = LosslessChunk::kRun / kWarp;

// Returns the bytes in front of the chunks.
constexpr int64_t lossless_head(int64_t all) {
  return kLosslessLength + lossless_chunks(all) * kLosslessSize;
}

}  // namespace ringdist::gpu
