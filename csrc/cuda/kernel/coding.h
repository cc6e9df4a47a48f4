// What a warp does to block `index` of a call: reads, rotates where that is asked for, codes, and
// keeps what was lost; or decodes. The same for every codec, which is a Coder.
//
// A Coder turns the values of one block in registers into bytes and back:
//   kCount, kParts          elements of a block; elements of a lane
//   kScratch                bytes of fast memory that its warp needs
//   kSparse                 a block is decoded by adding what was sent to zeros
//   bytes(count)            of a block, the last one as short as the rest
//   encode(warp, x, count, seed, at, out)
//                           writes the bytes of x, and makes x what they decode to: NaN where the
//                           block is poisoned. Beyond `count` x is 0. `at`: which element the first
//                           is, in the call or, behind a rotation, in the chunk whose seed it then
//                           is.
//   decode(warp, in, count, seed, at, adding, x)
//                           false, in all lanes, for bytes that no encoder writes. `adding`: x will
//                           be added to something.
#pragma once

#include <cstdint>

#include "cuda/grid/device.h"
#include "cuda/grid/warp.h"
#include "cuda/kernel/block_at.h"
#include "cuda/kernel/owed.h"
#include "cuda/kernel/rotation.h"
#include "cuda/kernel/seed.h"
#include "cuda/kernel/values.h"

namespace ringdist::gpu {

template <typename Coder>
constexpr int64_t blocks_of(int64_t count) {
  return blocks(count, Coder::kCount);
}

// Where a block is for a Coder: behind a rotation every chunk is a call of its own.
template <bool kRotated>
struct Place {
  Seed seed;
  uint64_t element;

  RINGDIST_DEVICE Place(Seed of_call, int64_t begin)
      : seed(kRotated ? of_call.of_chunk(static_cast<uint64_t>(begin / kRotationChunk)) : of_call),
        element(static_cast<uint64_t>(kRotated ? begin % kRotationChunk : begin)) {}
};

template <typename Coder, bool kRotated>
struct Encoding {
  Coder coder;
  const float* in;
  Owed owed;
  int64_t count;
  Seed seed;
  uint8_t* out;

  template <Warp W>
  RINGDIST_DEVICE void operator()(W& warp, int64_t index) const {
    for_whole_or_tail<Coder::kCount>(index, count, [&](BlockAt at) { run(warp, index, at); });
  }

 private:
  template <Warp W>
  RINGDIST_DEVICE void run(W& warp, int64_t index, BlockAt at) const {
    constexpr int kParts = Coder::kParts;
    const Owed mine = owed.at(at.begin);
    Values<W, kParts> sum;
    fill(warp, sum, 0);
    each_element<kParts>(warp, at.count, [&](int part, int lane, int i) {
      sum.part[part][lane] = in[at.begin + i];
    });
    const bool pays = mine.pays();
    if (pays)
      each_element<kParts>(
          warp, at.count, [&](int part, int lane, int i) { sum.part[part][lane] += mine.from[i]; });
    Values<W, kParts> x = sum;
    code(warp, x, at, out + index * coder.bytes(Coder::kCount));
    if (mine.empty()) return;
    each_element<kParts>(warp, at.count, [&](int part, int lane, int i) {
      const float lost = sum.part[part][lane] - x.part[part][lane];
      mine.to[i] = pays && finite(lost) ? lost : mine.from[i];
    });
  }

  // Writes the bytes of x, and makes it what they decode to.
  template <Warp W, int kParts>
  RINGDIST_DEVICE void code(W& warp, Values<W, kParts>& x, BlockAt at, uint8_t* to) const {
    const Place<kRotated> place(seed, at.begin);
    if constexpr (kRotated) {
      const Rotation rotation(place.seed, at.begin, at.count);
      rotation.forward(warp, x);
      coder.encode(warp, x, at.count, place.seed, place.element, to);
      if (owed.empty()) return;
      if (Coder::kSparse)
        for (auto& part : x.part) warp.each([&](int lane) { part[lane] += 0.0f; });
      rotation.back(warp, x);
    } else {
      coder.encode(warp, x, at.count, place.seed, place.element, to);
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

  template <Warp W>
  RINGDIST_DEVICE void operator()(W& warp, int64_t index) const {
    for_whole_or_tail<Coder::kCount>(index, count, [&](BlockAt at) { run(warp, index, at); });
  }

 private:
  template <Warp W>
  RINGDIST_DEVICE void run(W& warp, int64_t index, BlockAt at) const {
    constexpr int kParts = Coder::kParts;
    Values<W, kParts> x;
    fill(warp, x, 0);
    const bool adding = accumulate && !kRotated;
    const uint8_t* from = in + index * coder.bytes(Coder::kCount);
    const Place<kRotated> place(seed, at.begin);
    if (!coder.decode(warp, from, at.count, place.seed, place.element, adding, x)) {
      warp.each([&](int lane) {
        if (lane == 0) *malformed = 1;
      });
      return;
    }
    if constexpr (kRotated) Rotation(place.seed, at.begin, at.count).back(warp, x);
    each_element<kParts>(warp, at.count, [&](int part, int lane, int i) {
      float& to = out[at.begin + i];
      to = accumulate ? to + x.part[part][lane] : x.part[part][lane];
    });
  }
};

}  // namespace ringdist::gpu
