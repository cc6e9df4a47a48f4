// What a warp does to batch `index` of a call's blocks: reads, rotates where that is asked for,
// codes, and keeps what was lost; or decodes. All of a batch is read before the first block of it
// is worked on: a device's memory is far away. The same for every codec, which is a Coder.
//
// A Coder turns the values of one block in registers into bytes and back:
//   kCount, kParts          elements of a block; elements of a lane
//   kEncodes, kDecodes      blocks of a batch: as many as fit into the registers
//   kTogether               encode() takes a batch of them, as an array
//   kScratch                bytes of fast memory that its warp needs
//   kSparse                 a block is decoded by adding what was sent to zeros
//   bytes(count)            of a block, the last one as short as the rest
//   encode(warp, x, count, seed, at, out)
//                           writes the bytes of x, and makes x what they decode to: NaN where the
//                           block is poisoned. Beyond `count` x is 0. `at`: which element the first
//                           is, in the call or, behind a rotation, in the chunk whose seed it then
//                           is.
//   Fetched<W>, fetch(warp, in, count)
//                           a block's bytes, in registers or where they are
//   decode(warp, fetched, count, seed, at, adding, x)
//                           false, in all lanes, for bytes that no encoder writes. `adding`: x will
//                           be added to something.
#pragma once

#include <cstdint>

#include "cuda/kernel/block_at.h"
#include "cuda/kernel/block_values.h"
#include "cuda/kernel/encode_input.h"
#include "cuda/kernel/residual_pointers.h"
#include "cuda/kernel/rotation.h"
#include "cuda/kernel/seed.h"
#include "cuda/warp/device.h"
#include "cuda/warp/warp.h"

namespace ringdist::gpu {

// Where a block is for a Coder: behind a rotation every chunk is a call of its own.
template <bool kRotated>
struct BlockOrigin {
  Seed seed;
  uint64_t element;

  RINGDIST_DEVICE BlockOrigin(Seed of_call, int64_t begin)
      : seed(kRotated ? of_call.of_chunk(static_cast<uint64_t>(begin / kRotationChunk)) : of_call),
        element(static_cast<uint64_t>(kRotated ? begin % kRotationChunk : begin)) {}
};

template <typename Coder, bool kRotated>
struct Encoding {
  Coder coder;
  const float* in;
  ResidualPointers residual;
  int64_t count;
  Seed seed;
  uint8_t* out;

  static constexpr int kScratch = Coder::kScratch;
  constexpr int64_t batches() const { return blocks(count, Coder::kCount * Coder::kEncodes); }

  template <Warp W>
  RINGDIST_DEVICE void operator()(W& warp, int64_t index) const {
    const EncodeInput given{in, residual};
    const bool applies = residual.applies();
    for_batch<Coder::kCount, Coder::kEncodes>(index, count, [&]<int kBlocks>(BlockAt first) {
      Values<W, kParts> sums[kBlocks];
      RINGDIST_UNROLL
      for (int i = 0; i < kBlocks; ++i) given.read(warp, first.next(i), applies, sums[i]);
      Values<W, kParts> x[kBlocks];
      RINGDIST_UNROLL
      for (int i = 0; i < kBlocks; ++i) x[i] = sums[i];
      code(warp, x, first);
      if (residual.empty()) return;
      RINGDIST_UNROLL
      for (int i = 0; i < kBlocks; ++i)
        given.keep_loss(warp, first.next(i), applies, sums[i], x[i]);
    });
  }

 private:
  static constexpr int kParts = Coder::kParts;

  // Writes the bytes of the blocks x, and makes them what they decode to. They are of one chunk.
  template <Warp W, int kBlocks>
  RINGDIST_DEVICE void code(W& warp, Values<W, kParts> (&x)[kBlocks], BlockAt first) const {
    static_assert(kRotationChunk % (Coder::kCount * Coder::kEncodes) == 0);
    const BlockOrigin<kRotated> place(seed, first.begin);
    uint8_t* const to = out + first.begin / Coder::kCount * coder.bytes(Coder::kCount);
    if constexpr (kRotated) {
      RINGDIST_UNROLL
      for (int i = 0; i < kBlocks; ++i) rotation(place, first.next(i)).forward(warp, x[i]);
    }
    encode(warp, x, first.count, place, to);
    if constexpr (kRotated) {
      if (residual.empty()) return;
      RINGDIST_UNROLL
      for (int i = 0; i < kBlocks; ++i) {
        if (Coder::kSparse)
          for (auto& part : x[i].part) warp.each([&](int lane) { part[lane] += 0.0f; });
        rotation(place, first.next(i)).back(warp, x[i]);
      }
    }
  }

  RINGDIST_DEVICE static Rotation rotation(const BlockOrigin<kRotated>& place, BlockAt at) {
    return {place.seed, at.begin, at.count};
  }

  template <Warp W, int kBlocks>
  RINGDIST_DEVICE void encode(W& warp, Values<W, kParts> (&x)[kBlocks], int each,
                              const BlockOrigin<kRotated>& place, uint8_t* to) const {
    if constexpr (Coder::kTogether) {
      coder.encode(warp, x, each, place.seed, place.element, to);
    } else {
      RINGDIST_UNROLL
      for (int i = 0; i < kBlocks; ++i)
        coder.encode(warp, x[i], each, place.seed, place.element + static_cast<uint64_t>(i * each),
                     to + i * coder.bytes(each));
    }
  }
};

// Bytes that no encoder writes set *malformed, and the elements of their block stay as they are.
template <typename Coder, bool kRotated>
struct Decoding {
  Coder coder;
  const uint8_t* in;
  Seed seed;
  bool accumulate;
  float* out;
  int64_t count;
  int* malformed;

  static constexpr int kScratch = Coder::kScratch;
  constexpr int64_t batches() const { return blocks(count, Coder::kCount * Coder::kDecodes); }

  template <Warp W>
  RINGDIST_DEVICE void operator()(W& warp, int64_t index) const {
    for_batch<Coder::kCount, Coder::kDecodes>(index, count, [&]<int kBlocks>(BlockAt first) {
      typename Coder::template Fetched<W> bytes[kBlocks];
      Values<W, kParts> before[kBlocks];
      RINGDIST_UNROLL
      for (int i = 0; i < kBlocks; ++i) {
        const BlockAt at = first.next(i);
        const int64_t block = at.begin / Coder::kCount;
        bytes[i] = coder.fetch(warp, in + block * coder.bytes(Coder::kCount), at.count);
        if (accumulate) read(warp, at, before[i]);
      }
      RINGDIST_UNROLL
      for (int i = 0; i < kBlocks; ++i) finish(warp, first.next(i), bytes[i], before[i]);
    });
  }

 private:
  static constexpr int kParts = Coder::kParts;

  template <Warp W>
  RINGDIST_DEVICE void read(W& warp, BlockAt at, Values<W, kParts>& x) const {
    each_element<kParts>(
        warp, at.count, [&](int part, int lane, int i) { x.part[part][lane] = out[at.begin + i]; });
  }

  template <Warp W>
  RINGDIST_DEVICE void finish(W& warp, BlockAt at, const typename Coder::template Fetched<W>& bytes,
                              const Values<W, kParts>& before) const {
    Values<W, kParts> x;
    fill(warp, x, 0);
    const bool adding = accumulate && !kRotated;
    const BlockOrigin<kRotated> place(seed, at.begin);
    if (!coder.decode(warp, bytes, at.count, place.seed, place.element, adding, x)) {
      warp.each([&](int lane) {
        if (lane == 0) *malformed = 1;
      });
      return;
    }
    if constexpr (kRotated) Rotation(place.seed, at.begin, at.count).back(warp, x);
    each_element<kParts>(warp, at.count, [&](int part, int lane, int i) {
      const float value = x.part[part][lane];
      out[at.begin + i] = accumulate ? before.part[part][lane] + value : value;
    });
  }
};

}  // namespace ringdist::gpu
