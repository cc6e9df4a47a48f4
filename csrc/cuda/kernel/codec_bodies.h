// Bodies of kernels that encode or decode a call. For each batch of blocks, a warp reads the
// values, rotates them if necessary, encodes them and stores the residual, or it decodes. It reads
// all of a batch before it works on the first block, to hide the latency of memory. The bodies are
// the same for every codec, which is a Coder.
//
// A Coder turns the values of one block in registers into bytes and back. It has these members.
//   `kCount`, `kParts`      Elements of a block and of a lane.
//   `kEncodes`, `kDecodes`  Blocks of a batch, limited by the registers.
//   `kTogether`             True if encode() accepts a batch of blocks, as an array.
//   `kScratch`              Bytes of shared memory that its warp needs.
//   `kSparse`               True if decoding a block adds what was sent to zeros.
//   `bytes(count)`          Bytes of a block. The last block may be shorter than the others.
//   `encode(warp, x, count, seed, at, out)`
//                           Writes the bytes of x, and replaces x by the decoded values. These are
//                           NaN if the block is poisoned. Elements of x beyond `count` are 0. `at`
//                           is the first element in the call. Behind a rotation, it is the first
//                           element in the chunk, and `seed` is that of the chunk.
//   `Fetched<W>`, `fetch(warp, in, count)`
//                           The bytes of a block, in registers or in memory.
//   `decode(warp, fetched, count, seed, at, adding, x)`
//                           Returns false in all lanes for bytes that no encoder writes. `adding`
//                           means that x will be added to something.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "cuda/kernel/block_at.h"
#include "cuda/kernel/block_values.h"
#include "cuda/kernel/encode_input.h"
#include "cuda/kernel/seed.h"
#include "cuda/warp/device.h"
#include "cuda/warp/warp.h"
#include "kernel/counter_rng.h"
#include "kernel/hadamard.h"

namespace ringdist::gpu {

// Number of elements that share a seed for their signs.
inline constexpr int64_t kRotationChunk = 1024;

constexpr float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(127 + exponent) << 23);
}

// Elements that are rotated together. A whole block is one run. The last block of a call is split
// into runs of powers of two, the longest first.
struct RotationBlock {
  int begin;
  int count;

  // Returns the run of element i. The highest bit in which i and `count` differ is the length of
  // the run.
  RINGDIST_DEVICE static RotationBlock of(int i, int count) {
    const int bit = 31 - std::countl_zero(static_cast<uint32_t>(i ^ count));
    return {i >> bit << bit, 1 << bit};
  }
  RINGDIST_DEVICE int log() const { return lowest_bit(static_cast<uint32_t>(count)); }
};

// Rotation of one block by a warp: seeded signs and the fast Walsh-Hadamard transform.
// Bit-identical to codec/rotated.cc and kernel/hadamard.cc, and specified in codec/rotated.spec.md.
//
// Two transforms of 2^m elements multiply them by 2^m. forward() divides by 2^floor(m / 2) and
// back() by 2^ceil(m / 2). Both are powers of two, which do not round, unlike the root of 2^m.
class Rotation {
 public:
  // `begin` is the first element of the block in the call.
  RINGDIST_DEVICE Rotation(Seed of_chunk, int64_t begin, int count)
      : signs_(of_chunk.shared), begin_(static_cast<int>(begin % kRotationChunk)), count_(count) {}

  // A non-finite value makes the whole block NaN. Values that are too large for the transform are
  // scaled down.
  template <Warp W, int kParts>
  RINGDIST_DEVICE void forward(W& warp, Values<W, kParts>& x) const {
    const uint32_t largest = largest_magnitude(warp, x);
    const bool poisoned = largest >= kInfinity;
    const float factor = largest < kRotationHuge ? 1.0f : kRotationShrink;
    each_element<kParts>(warp, count_, [&](int part, int lane, int i) {
      float& to = x.part[part][lane];
      const float prepared = poisoned ? std::numeric_limits<float>::quiet_NaN() : to * factor;
      to = flipped(prepared, i) * power_of_two(-(RotationBlock::of(i, count_).log() / 2));
    });
    for (int half = 1; half < kParts * kWarp; half *= 2) stage(warp, x, half);
  }

  template <Warp W, int kParts>
  RINGDIST_DEVICE void back(W& warp, Values<W, kParts>& x) const {
    each_element<kParts>(warp, count_, [&](int part, int lane, int i) {
      x.part[part][lane] *= power_of_two(-((RotationBlock::of(i, count_).log() + 1) / 2));
    });
    for (int half = kParts * kWarp / 2; half > 0; half /= 2) stage(warp, x, half);
    each_element<kParts>(warp, count_, [&](int part, int lane, int i) {
      x.part[part][lane] = flipped(x.part[part][lane], i);
    });
  }

 private:
  // Applies the random sign of element i. A run takes consecutive bits of its chunk, from the byte
  // of its first element on.
  RINGDIST_DEVICE float flipped(float x, int i) const {
    const RotationBlock run = RotationBlock::of(i, count_);
    const int bit = (begin_ + run.begin) / 8 * 8 + (i - run.begin);
    const auto word = random_at(signs_, static_cast<uint64_t>(bit / 64));
    const auto sign = static_cast<uint32_t>(word >> (bit % 64)) & 1;
    return std::bit_cast<float>(float_bits(x) ^ (sign << 31));
  }

  // Replaces elements of a run that are `half` apart by their sum and difference.
  template <Warp W, int kParts>
  RINGDIST_DEVICE void stage(W& warp, Values<W, kParts>& x, int half) const {
    if (half < kWarp) return stage_of_lanes(warp, x, half);
    const int apart = half / kWarp;  // distance in parts
    for (int part = 0; part < kParts; ++part) {
      if ((part & apart) != 0) continue;
      warp.each([&](int lane) {
        const int i = part * kWarp + lane;
        // A shorter run has no such stage.
        if (i >= count_ || half >= RotationBlock::of(i, count_).count) return;
        float& low = x.part[part][lane];
        float& high = x.part[part + apart][lane];
        const float sum = low + high;
        high = low - high;
        low = sum;
      });
    }
  }

  template <Warp W, int kParts>
  RINGDIST_DEVICE void stage_of_lanes(W& warp, Values<W, kParts>& x, int half) const {
    for (int part = 0; part < kParts; ++part) {
      const auto other = warp.shuffled(x.part[part], half);
      warp.each([&](int lane) {
        const int i = part * kWarp + lane;
        if (i >= count_ || half >= RotationBlock::of(i, count_).count) return;
        float& own = x.part[part][lane];
        own = (lane & half) != 0 ? other[lane] - own : own + other[lane];
      });
    }
  }

  uint64_t signs_;
  int begin_;  // offset in the chunk
  int count_;
};

// Seed and position of a block for a Coder. Behind a rotation, every chunk counts as a call.
template <bool kRotated>
struct BlockOrigin {
  Seed seed;
  uint64_t element;

  RINGDIST_DEVICE BlockOrigin(Seed of_call, int64_t begin)
      : seed(kRotated ? of_call.of_chunk(static_cast<uint64_t>(begin / kRotationChunk)) : of_call),
        element(static_cast<uint64_t>(kRotated ? begin % kRotationChunk : begin)) {}
};

// Encodes a call.
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

  // Writes the bytes of the blocks and replaces `x` by the decoded values. All blocks belong to one
  // chunk.
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
        // A decoder adds what was sent to zeros, so -0 becomes +0. The loss must be that of its
        // values.
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

// Decodes a call. If a block has bytes that no encoder writes, sets *malformed and leaves its
// elements unchanged.
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
    // Rotated values are not added to anything yet: that follows after the rotation back.
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
