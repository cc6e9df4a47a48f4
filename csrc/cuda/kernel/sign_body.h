// What one warp does to one block of codec `onebit`: the twin of codec/onebit.cc and
// kernel/sign.cc, byte for byte. codec/onebit.spec.md has the bytes.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "cuda/grid/device.h"
#include "cuda/grid/warp.h"
#include "cuda/kernel/block_at.h"
#include "cuda/kernel/owed.h"
#include "kernel/finite_bfloat.h"
#include "kernel/half.h"
#include "kernel/sign.h"

namespace ringdist::gpu {

inline constexpr int kSignCount = kSignBlock;  // elements of a block
inline constexpr int kSignParts = kSignCount / kWarp;
inline constexpr int kSignScale = sizeof(uint16_t);  // bytes before the signs
inline constexpr uint32_t kSignBit = 0x80000000;
inline constexpr uint32_t kInfinity = 0x7f800000;
inline constexpr uint16_t kSingle = 0x8000;  // a scale field of one element

constexpr int64_t sign_block_bytes(int count) { return kSignScale + (count + 7) / 8; }

constexpr uint32_t magnitude_bits(float x) { return std::bit_cast<uint32_t>(x) & ~kSignBit; }
constexpr float with_sign_of(float magnitude, uint32_t sign) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) ^ sign);
}

// Of a field with kSingle set: the element, and its magnitude 2^(e - 149).
constexpr int single_index(uint16_t field) { return field & 0xff; }
constexpr float single_value(uint16_t field) {
  const uint32_t e = field >> 8 & 0x7f;
  return std::bit_cast<float>(e < 23 ? 1u << e : (e - 22) << 23);
}

template <Warp W>
struct SignBlockOf {
  typename W::template Lanes<float> x[kSignParts];  // element i is part i / 32 of lane i % 32
  int count = 0;
};

// For sums of magnitudes that are not finite: NaN, or the mean where only their sum overflows.
template <Warp W>
RINGDIST_DEVICE float large_mean(W& warp, const SignBlockOf<W>& block) {
  double total = 0;
  for (int i = 0; i < block.count; ++i) {
    const float x = warp.of(block.x[i / kWarp], i % kWarp);
    total += static_cast<double>(std::bit_cast<float>(magnitude_bits(x)));
  }
  if (!(total <= static_cast<double>(block.count) * std::numeric_limits<float>::max()))
    return std::numeric_limits<float>::quiet_NaN();
  return static_cast<float>(total / static_cast<double>(block.count));
}

// The first of the largest elements, rounded down to a power of two.
template <Warp W>
RINGDIST_DEVICE uint16_t single(W& warp, const SignBlockOf<W>& block) {
  typename W::template Lanes<uint32_t> largest;
  warp.each([&](int lane) {
    largest[lane] = 0;
    for (const auto& part : block.x)
      if (magnitude_bits(part[lane]) > largest[lane]) largest[lane] = magnitude_bits(part[lane]);
  });
  const uint32_t most = warp.maximum(largest);
  const int exponent =
      most >= 1u << 23 ? static_cast<int>(most >> 23) + 22 : 31 - std::countl_zero(most);
  int index = kSignCount;
  for (int part = kSignParts - 1; part >= 0; --part) {
    typename W::template Lanes<uint32_t> here;
    warp.each([&](int lane) { here[lane] = magnitude_bits(block.x[part][lane]) == most ? 1 : 0; });
    const uint32_t lanes = warp.ballot(here);
    if (lanes != 0) index = part * kWarp + std::countr_zero(lanes);
  }
  return static_cast<uint16_t>(kSingle | exponent << 8 | index);
}

template <Warp W>
RINGDIST_DEVICE uint16_t scale_field(W& warp, const SignBlockOf<W>& block, float total) {
  if (total == 0) return 0;
  const float mean = magnitude_bits(total) < kInfinity ? total / static_cast<float>(block.count)
                                                       : large_mean(warp, block);
  if (magnitude_bits(mean) >= kInfinity) return kBFloatNaN;
  if (mean < std::numeric_limits<float>::min()) return single(warp, block);
  return finite_bfloat(mean);
}

// Calls of these, one for each index below blocks(count, kSignCount), code `count` elements.
struct TakingSigns {
  const float* in;
  Owed owed;
  int64_t count;
  uint8_t* out;

  template <Warp W>
  RINGDIST_DEVICE void operator()(W& warp, int64_t index) const {
    const BlockAt at(index, count, kSignCount);
    const Owed mine = owed.at(at.begin);
    uint8_t* to = out + index * sign_block_bytes(kSignCount);
    SignBlockOf<W> block;
    const float total = take(warp, block, at, mine, to + kSignScale);
    const uint16_t field = scale_field(warp, block, total);
    warp.each([&](int lane) {
      if (lane < kSignScale) to[lane] = static_cast<uint8_t>(field >> (8 * lane));
    });
    if (!mine.empty()) keep_lost(warp, block, field, mine);
  }

 private:
  // Reads the block, writes its signs; the sum of magnitudes: one of each lane, then pairwise.
  template <Warp W>
  RINGDIST_DEVICE float take(W& warp, SignBlockOf<W>& block, BlockAt at, Owed mine,
                             uint8_t* signs) const {
    block.count = at.count;
    typename W::template Lanes<float> sum;
    warp.each([&](int lane) { sum[lane] = 0; });
    for (int part = 0; part < kSignParts; ++part) {
      typename W::template Lanes<uint32_t> negative;
      warp.each([&](int lane) {
        const int i = part * kWarp + lane;
        float x = i < at.count ? in[at.begin + i] : 0.0f;
        if (!mine.empty() && i < at.count) x += mine.from[i];
        block.x[part][lane] = x;
        sum[lane] += std::bit_cast<float>(magnitude_bits(x));
        negative[lane] = i < at.count ? std::bit_cast<uint32_t>(x) >> 31 : 0;
      });
      const uint32_t word = warp.ballot(negative);
      warp.each([&](int lane) {
        const int byte = part * kWarp / 8 + lane;
        if (lane < kWarp / 8 && byte < (at.count + 7) / 8)
          signs[byte] = static_cast<uint8_t>(word >> (8 * lane));
      });
    }
    for (int flip = kWarp / 2; flip > 0; flip /= 2) {
      const auto other = warp.shuffled(sum, flip);
      warp.each([&](int lane) { sum[lane] += other[lane]; });
    }
    return warp.of(sum, 0);
  }

  template <Warp W>
  RINGDIST_DEVICE static void keep_lost(W& warp, const SignBlockOf<W>& block, uint16_t field,
                                        Owed mine) {
    const bool one = field != kBFloatNaN && (field & kSingle) != 0;
    const float scale = one ? single_value(field) : bfloat_to_float(field);
    for (int part = 0; part < kSignParts; ++part)
      warp.each([&](int lane) {
        const int i = part * kWarp + lane;
        if (i >= block.count) return;
        const float x = block.x[part][lane];
        const bool sent = !one || i == single_index(field);
        const float stored = with_sign_of(scale, std::bit_cast<uint32_t>(x) & kSignBit);
        mine.to[i] = field == kBFloatNaN ? mine.from[i] : sent ? x - stored : x;
      });
  }
};

// A block that names an element which it has not sets *malformed, and its elements stay as they
// are.
struct ReadingSigns {
  const uint8_t* in;
  bool accumulate;
  float* out;
  int64_t count;
  int* malformed;

  template <Warp W>
  RINGDIST_DEVICE void operator()(W& warp, int64_t index) const {
    const BlockAt at(index, count, kSignCount);
    const uint8_t* from = in + index * sign_block_bytes(kSignCount);
    const uint8_t* signs = from + kSignScale;
    const auto field = static_cast<uint16_t>(from[0] | from[1] << 8);
    const bool one = (field & kSingle) != 0;
    if (one && single_index(field) >= at.count) {
      warp.each([&](int lane) {
        if (lane == 0) *malformed = 1;
      });
      return;
    }
    const float scale = one ? single_value(field) : bfloat_to_float(field);
    for (int part = 0; part < kSignParts; ++part)
      warp.each([&](int lane) {
        const int i = part * kWarp + lane;
        if (i >= at.count) return;
        const uint32_t sign = static_cast<uint32_t>(signs[i / 8] >> (i % 8)) << 31;
        const float x = with_sign_of(scale, sign);
        float& to = out[at.begin + i];
        if (one && i != single_index(field))
          to = accumulate ? to : 0.0f;
        else
          to = accumulate ? to + x : x;
      });
  }
};

}  // namespace ringdist::gpu
