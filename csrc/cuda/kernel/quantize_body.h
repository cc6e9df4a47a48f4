// What one warp does to one block of the codecs fp8, int8, int4 and int2: reads, chooses, packs,
// and keeps what was lost; or decodes. The twin of kernel/quantize_loops.h, byte for byte.
#pragma once

#include <cstdint>

#include "cuda/grid/device.h"
#include "cuda/grid/warp.h"
#include "cuda/kernel/block_at.h"
#include "cuda/kernel/owed.h"
#include "cuda/kernel/quantize_format.h"
#include "kernel/block_format.h"
#include "kernel/block_scale.h"

namespace ringdist::gpu {

inline constexpr int kScaleBytes = sizeof(uint16_t);
inline constexpr int kBlockCount = kQuantizeBlock;  // elements

// Bytes that `count` codes take; byte i holds codes i, i + that many, ..., the first in its low
// bits.
template <typename Format>
RINGDIST_DEVICE constexpr int packed_bytes(int count) {
  return (count * Format::kBits + 7) / 8;
}
// And of a block.
template <typename Format>
RINGDIST_DEVICE constexpr int64_t block_bytes(int count) {
  return kScaleBytes + packed_bytes<Format>(count);
}

template <Warp W>
RINGDIST_DEVICE void load(W& warp, Block<W>& block, const float* in, const float* owed, int count) {
  typename W::template Lanes<uint32_t> largest;  // with the sign as its lowest bit
  warp.each([&](int lane) { largest[lane] = 0; });
  for (int part = 0; part < kParts; ++part)
    warp.each([&](int lane) {
      const int i = part * kWarp + lane;
      float x = i < count ? in[i] : 0.0f;
      if (owed != nullptr && i < count) x += owed[i];
      const uint32_t rotated = (float_bits(x) << 1) | (float_bits(x) >> 31);
      block.x[part][lane] = x;
      if (rotated > largest[lane]) largest[lane] = rotated;
    });
  const uint32_t most = warp.maximum(largest);
  block.largest = most >> 1;
  block.largest_sign = most << 31;
}

// Blocks that have no ordinary scale: all zero, tiny, or not finite.
template <typename Format, Warp W>
RINGDIST_DEVICE uint16_t quantize_rare(W& warp, Block<W>& block) {
  const bool finite = block.largest < 0x7f800000;
  const bool zero = block.largest == 0 || !finite;
  const uint16_t scale =
      zero ? (finite ? uint16_t{0} : kPoisonScale) : tiny_scale(block.largest, Format::kTinyBits);
  for (int part = 0; part < kParts; ++part)
    warp.each([&](int lane) {
      const int t = zero ? 0 : tiny_code(block.x[part][lane], scale);
      block.t[part][lane] = static_cast<float>(t);
      block.code[part][lane] = Format::field(t);
    });
  return scale;
}

template <typename Format, Warp W>
RINGDIST_DEVICE uint16_t choose(W& warp, Block<W>& block, Stochastic rounding, uint64_t at) {
  const bool ordinary = block.largest >= float_bits(kSmallestScaled) && block.largest < 0x7f800000;
  return ordinary ? Format::quantize(warp, block, rounding, at)
                  : quantize_rare<Format>(warp, block);
}

template <typename Format, Warp W>
RINGDIST_DEVICE void pack(W& warp, const Block<W>& block, int count, uint8_t* out) {
  constexpr int kFields = 8 / Format::kBits;
  if (count == kBlockCount) {  // a byte's codes are all of one lane
    constexpr int kRows = kParts / kFields;
    for (int row = 0; row < kRows; ++row)
      warp.each([&](int lane) {
        uint32_t byte = 0;
        for (int field = 0; field < kFields; ++field)
          byte |= block.code[row + field * kRows][lane] << (field * Format::kBits);
        out[row * kWarp + lane] = static_cast<uint8_t>(byte);
      });
    return;
  }
  uint8_t* codes = warp.scratch();
  for (int part = 0; part < kParts; ++part)
    warp.each([&](int lane) {
      codes[part * kWarp + lane] = static_cast<uint8_t>(block.code[part][lane]);
    });
  warp.sync();
  const int bytes = packed_bytes<Format>(count);
  for (int begin = 0; begin < bytes; begin += kWarp)
    warp.each([&](int lane) {
      const int i = begin + lane;
      if (i >= bytes) return;
      uint32_t byte = 0;
      for (int field = 0; field < kFields; ++field)
        byte |= static_cast<uint32_t>(codes[i + field * bytes]) << (field * Format::kBits);
      out[i] = static_cast<uint8_t>(byte);
    });
  warp.sync();  // before the next block's codes
}

template <Warp W>
RINGDIST_DEVICE void keep_lost(W& warp, const Block<W>& block, uint16_t scale, Owed owed,
                               int count) {
  const bool poisoned = scale == kPoisonScale;
  const float value = scale_value(scale);
  for (int part = 0; part < kParts; ++part)
    warp.each([&](int lane) {
      const int i = part * kWarp + lane;
      if (i >= count) return;
      owed.to[i] = poisoned ? owed.from[i] : block.x[part][lane] - block.t[part][lane] * value;
    });
}

// The work of kernel/quantize.h is a call of these for each index below blocks(count, kBlockCount).
template <typename Format>
struct Quantizing {
  const float* in;
  Owed owed;
  int64_t count;
  Stochastic rounding;
  uint8_t* out;

  template <Warp W>
  RINGDIST_DEVICE void operator()(W& warp, int64_t index) const {
    const BlockAt at(index, count, kBlockCount);
    const Owed mine = owed.at(at.begin);
    Block<W> block;
    load(warp, block, in + at.begin, mine.from, at.count);
    const auto scale = choose<Format>(warp, block, rounding, static_cast<uint64_t>(at.begin));
    uint8_t* to = out + index * block_bytes<Format>(kBlockCount);
    warp.each([&](int lane) {
      if (lane < kScaleBytes) to[lane] = static_cast<uint8_t>(scale >> (8 * lane));
    });
    pack<Format>(warp, block, at.count, to + kScaleBytes);
    if (!mine.empty()) keep_lost(warp, block, scale, mine, at.count);
  }
};

template <typename Format>
struct Dequantizing {
  const uint8_t* in;
  bool accumulate;
  float* out;
  int64_t count;

  template <Warp W>
  RINGDIST_DEVICE void operator()(W& warp, int64_t index) const {
    constexpr uint32_t kMask = (1u << Format::kBits) - 1;
    const BlockAt at(index, count, kBlockCount);
    const uint8_t* from = in + index * block_bytes<Format>(kBlockCount);
    const float scale = scale_value(static_cast<uint16_t>(from[0] | from[1] << 8));
    const uint8_t* packed = from + kScaleBytes;
    const int bytes = packed_bytes<Format>(at.count);
    for (int part = 0; part < kParts; ++part)
      warp.each([&](int lane) {
        const int i = part * kWarp + lane;
        if (i >= at.count) return;
        const int field = i / bytes;
        const uint32_t code = packed[i - field * bytes] >> (field * Format::kBits);
        const float x = Format::value(code & kMask) * scale;
        float& to = out[at.begin + i];
        to = accumulate ? to + x : x;
      });
  }
};

}  // namespace ringdist::gpu
