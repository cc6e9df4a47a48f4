// Where the chunks of the codec `lossless` begin, from the sizes in front of them: one warp, in a
// launch between those that need a warp for each chunk.
#pragma once

#include <cstdint>

#include "cuda/kernel/block_at.h"
#include "cuda/kernel/block_values.h"
#include "cuda/kernel/lossless_type.h"
#include "cuda/warp/device.h"
#include "cuda/warp/scan.h"
#include "cuda/warp/warp.h"

namespace ringdist::gpu {

// What both know.
template <typename Stored>
struct LosslessOffsets {
  int64_t count;
  uint64_t* begin;  // of each chunk, and of what follows: bytes from the length in front

  static constexpr int kScratch = 0;
  constexpr int64_t batches() const { return 1; }

  struct Found {
    uint64_t end;
    bool good;  // no chunk is larger than its elements
  };
  template <Warp W>
  RINGDIST_DEVICE Found find(W& warp, const uint8_t* bytes) const {
    constexpr int kEach = 8;  // sizes that a lane adds by itself
    const int64_t chunks = lossless_chunks(count);
    const uint8_t* const sizes = bytes + kLosslessLength;
    auto at = static_cast<uint64_t>(lossless_head(count));
    bool good = true;
    for (int64_t index = 0; index < chunks; index += kEach * kWarp) {
      typename W::template Lanes<uint32_t> size[kEach], sum, wrong;
      warp.each([&](int lane) {
        sum[lane] = wrong[lane] = 0;
        RINGDIST_UNROLL
        for (int i = 0; i < kEach; ++i) {
          const int64_t mine = index + lane * kEach + i;
          size[i][lane] = mine < chunks ? load16(sizes + mine * kLosslessSize) : 0;
          sum[lane] += size[i][lane];
          if (mine >= chunks) continue;
          const auto most = static_cast<uint32_t>(lossless_chunk<Stored>(mine, count).raw_bytes());
          if (size[i][lane] > most) wrong[lane] = 1;
        }
      });
      const auto before = sums_before(warp, sum);
      warp.each([&](int lane) {
        uint64_t next = at + before[lane];
        RINGDIST_UNROLL
        for (int i = 0; i < kEach; ++i) {
          const int64_t mine = index + lane * kEach + i;
          if (mine < chunks) begin[mine] = next;
          next += size[i][lane];
        }
      });
      at += warp.sum(sum);
      good = good && warp.ballot(wrong) == 0;
    }
    return {at, good};
  }
};

// Of an encoder: writes the length.
template <typename Stored>
struct LosslessLength : LosslessOffsets<Stored> {
  uint8_t* out;

  template <Warp W>
  RINGDIST_DEVICE void operator()(W& warp, int64_t) const {
    const auto length =
        static_cast<uint32_t>(this->find(warp, out).end - uint64_t{kLosslessLength});
    warp.each([&](int lane) {
      if (lane < kLosslessLength) out[lane] = static_cast<uint8_t>(length >> (8 * lane));
    });
  }
};

// Of a decoder: what follows begins at 0 if sizes and length do not go together.
template <typename Stored>
struct LosslessStarts : LosslessOffsets<Stored> {
  const uint8_t* in;
  int* malformed;

  template <Warp W>
  RINGDIST_DEVICE void operator()(W& warp, int64_t) const {
    const auto found = this->find(warp, in);
    const uint64_t length = load16(in) | uint64_t{load16(in + 2)} << 16;
    const bool good = found.good && found.end == uint64_t{kLosslessLength} + length;
    warp.each([&](int lane) {
      if (lane != 0) return;
      this->begin[lossless_chunks(this->count)] = good ? found.end : 0;
      if (!good) *malformed = 1;
    });
  }
};

}  // namespace ringdist::gpu
