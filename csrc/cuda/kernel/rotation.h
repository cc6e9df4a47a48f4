// The rotation of one block by a warp: seeded signs and the fast Walsh-Hadamard transform. The twin
// of codec/rotated.cc and kernel/hadamard.cc, bit for bit; codec/rotated.spec.md says what it is.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "cuda/kernel/block_values.h"
#include "cuda/kernel/seed.h"
#include "cuda/warp/device.h"
#include "cuda/warp/warp.h"
#include "kernel/counter_rng.h"
#include "kernel/hadamard.h"

namespace ringdist::gpu {

// Blocks of one chunk share their signs.
inline constexpr int64_t kRotationChunk = 1024;

constexpr float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(127 + exponent) << 23);
}

// Elements that are rotated together: all of a whole block; of a tail, runs of powers of two, the
// longest first.
struct RotationRun {
  int begin;
  int count;

  // Element i's of `count`: the highest bit in which the two differ is the run's length.
  RINGDIST_DEVICE static RotationRun of(int i, int count) {
    const int bit = 31 - std::countl_zero(static_cast<uint32_t>(i ^ count));
    return {i >> bit << bit, 1 << bit};
  }
  RINGDIST_DEVICE int log() const { return lowest_bit(static_cast<uint32_t>(count)); }
};

class Rotation {
 public:
  // Of the block of `count` elements that begins at element `begin` of a call.
  RINGDIST_DEVICE Rotation(Seed of_chunk, int64_t begin, int count)
      : signs_(of_chunk.shared), begin_(static_cast<int>(begin % kRotationChunk)), count_(count) {}

  // What is not finite, or too large for the transform, makes all of its block so, or small.
  template <Warp W, int kParts>
  RINGDIST_DEVICE void forward(W& warp, Values<W, kParts>& x) const {
    const uint32_t largest = largest_magnitude(warp, x);
    const bool poisoned = largest >= kInfinity;
    const float factor = largest < kRotationHuge ? 1.0f : kRotationShrink;
    each_element<kParts>(warp, count_, [&](int part, int lane, int i) {
      float& to = x.part[part][lane];
      const float prepared = poisoned ? std::numeric_limits<float>::quiet_NaN() : to * factor;
      to = flipped(prepared, i) * power_of_two(-(RotationRun::of(i, count_).log() / 2));
    });
    for (int half = 1; half < kParts * kWarp; half *= 2) stage(warp, x, half);
  }

  template <Warp W, int kParts>
  RINGDIST_DEVICE void back(W& warp, Values<W, kParts>& x) const {
    each_element<kParts>(warp, count_, [&](int part, int lane, int i) {
      x.part[part][lane] *= power_of_two(-((RotationRun::of(i, count_).log() + 1) / 2));
    });
    for (int half = kParts * kWarp / 2; half > 0; half /= 2) stage(warp, x, half);
    each_element<kParts>(warp, count_, [&](int part, int lane, int i) {
      x.part[part][lane] = flipped(x.part[part][lane], i);
    });
  }

 private:
  RINGDIST_DEVICE float flipped(float x, int i) const {
    const RotationRun run = RotationRun::of(i, count_);
    const int bit = (begin_ + run.begin) / 8 * 8 + (i - run.begin);
    const auto word = random_at(signs_, static_cast<uint64_t>(bit / 64));
    const auto sign = static_cast<uint32_t>(word >> (bit % 64)) & 1;
    return std::bit_cast<float>(float_bits(x) ^ (sign << 31));
  }

  // Sums and differences of elements of a run that are `half` apart.
  template <Warp W, int kParts>
  RINGDIST_DEVICE void stage(W& warp, Values<W, kParts>& x, int half) const {
    if (half < kWarp) return stage_of_lanes(warp, x, half);
    const int apart = half / kWarp;  // parts
    for (int part = 0; part < kParts; ++part) {
      if ((part & apart) != 0) continue;
      warp.each([&](int lane) {
        const int i = part * kWarp + lane;
        if (i >= count_ || half >= RotationRun::of(i, count_).count) return;
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
        if (i >= count_ || half >= RotationRun::of(i, count_).count) return;
        float& own = x.part[part][lane];
        own = (lane & half) != 0 ? other[lane] - own : own + other[lane];
      });
    }
  }

  uint64_t signs_;
  int begin_;  // in the chunk
  int count_;
};

}  // namespace ringdist::gpu
