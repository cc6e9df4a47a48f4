// Loops of kernel/quantize.h as templates that are always inlined into their callers. So the
// vectorised code uses the caller's instruction set, and no copy of it can reach another object
// file. Blocks are processed in arrays that stay in the first-level cache.
//
// Rounding to integers adds 1.5 * 2^23, which makes the last mantissa bit count ones. The low bits
// of the sum are then the integer, rounded to nearest even, in two's complement.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernel/block_format.h"
#include "kernel/counter_rng.h"
#include "kernel/fp8.h"
#include "kernel/residual_span.h"

namespace ringdist::quantization {

inline constexpr size_t kBlock = kQuantizeBlock;
inline constexpr size_t kScaleBytes = sizeof(uint16_t);
inline constexpr float kRound = 0x1.8p23f;

[[gnu::always_inline]] inline uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
[[gnu::always_inline]] inline float float_of(uint32_t x) { return std::bit_cast<float>(x); }

// A block between load and pack: its values, its codes (one per byte), and the values that the
// codes represent before scaling.
struct Block {
  alignas(64) float x[kBlock];
  alignas(64) float t[kBlock];
  alignas(64) uint8_t code[kBlock];
  uint32_t largest = 0;       // bits of the largest magnitude
  uint32_t largest_sign = 0;  // its sign bit; set if both signs have that magnitude
  uint16_t scale = 0;         // in its wire format
};

// Handles blocks that the fast loops leave: all zero, too small for a normal scale, or not finite.
// Fills in t and code as integers of at most `bits` bits and a sign, and returns the scale. It is
// one function for all instruction sets, because such blocks are rare.
[[gnu::noinline]] uint16_t quantize_rare(Block& block, int bits);

// Reads a block, adds the residual and finds the largest magnitude. It is the first of three steps.
// Magnitudes are compared as integers, which have the same order, with inf and NaN above all
// others.
template <bool kResidual>
[[gnu::always_inline]] inline void load(Block& block, const float* in, const float* residual) {
  uint32_t largest = 0;  // the sign is the lowest bit, so that one maximum finds both
  for (size_t i = 0; i < kBlock; ++i) {
    const float x = kResidual ? in[i] + residual[i] : in[i];
    const uint32_t rotated = (bits_of(x) << 1) | (bits_of(x) >> 31);
    block.x[i] = x;
    largest = rotated > largest ? rotated : largest;
  }
  block.largest = largest >> 1;
  block.largest_sign = largest << 31;
}

// Format with codes from -127 to 127; the scale comes from the largest magnitude.
struct Int8 {
  static constexpr int kBits = 8;
  static constexpr int kTinyBits = 7;
  [[gnu::always_inline]] static uint8_t tiny(uint8_t code) { return code; }
  [[gnu::always_inline]] static float value(uint8_t code) { return static_cast<int8_t>(code); }

  [[gnu::always_inline]] static uint16_t quantize(Block& block, const uint16_t* random) {
    const uint16_t scale = scale_up(float_of(block.largest), 127);
    const float inverse = 1 / bfloat_to_float(scale);
    if (random != nullptr) dither(block, inverse, random);
    for (size_t i = 0; i < kBlock; ++i) {
      const float shifted = (random == nullptr ? block.x[i] * inverse : block.t[i]) + kRound;
      block.t[i] = shifted - kRound;
      block.code[i] = static_cast<uint8_t>(bits_of(shifted));
    }
    return scale;
  }

 private:
  // Adds -1/2 + (r + 1/2) / 2^16 for 16 random bits r. Rounding to nearest then rounds up with a
  // probability equal to the fraction, and integers keep their values.
  [[gnu::always_inline]] static void dither(Block& block, float inverse, const uint16_t* random) {
    for (size_t i = 0; i < kBlock; ++i) {
      const float offset = (static_cast<float>(random[i]) - 32767.5f) * 0x1p-16f;
      const float moved = block.x[i] * inverse + offset;
      const float low = moved < -127.0f ? -127.0f : moved;
      block.t[i] = low > 127.0f ? 127.0f : low;
    }
  }
};

// Sum of a block in a fixed order: sixteen running sums, element i in sum i % 16, which are then
// added pairwise. The order is the same on every machine, however many of them fit into a register
// (kLanes).
template <size_t kLanes>
struct Sum {
  using Vector [[gnu::vector_size(kLanes * sizeof(float))]] = float;
  static constexpr size_t kRunning = 16;
  Vector running[kRunning / kLanes] = {};

  [[gnu::always_inline]] float total() const {
    // Works on groups of four; otherwise the compiler takes the registers apart float by float.
    using Four [[gnu::vector_size(4 * sizeof(float))]] = float;
    Four x[kRunning / 4];
    std::memcpy(x, running, sizeof x);
    const Four y = (x[0] + x[2]) + (x[1] + x[3]);
    return (y[0] + y[2]) + (y[1] + y[3]);
  }
};

// Format with codes from -2^(bits-1) to 2^(bits-1) - 1 and a signed scale. The largest magnitude
// gets the code without a positive counterpart, which uses the whole range of codes. The final
// scale is the least-squares one, <c,t> / <t,t>, times the first scale.
template <int kBitCount, size_t kLanes>
struct Signed {
  static constexpr int kBits = kBitCount;
  static constexpr int kLow = 1 << (kBits - 1);
  static constexpr int kTinyBits = kBits - 1;
  [[gnu::always_inline]] static uint8_t tiny(uint8_t code) { return code; }
  [[gnu::always_inline]] static float value(uint8_t code) {
    constexpr int kMask = (1 << kBits) - 1;
    return static_cast<float>((code & kMask) - kLow);
  }

  [[gnu::always_inline]] static uint16_t quantize(Block& block, const uint16_t*) {
    using Vector = typename Sum<kLanes>::Vector;
    constexpr size_t kParts = Sum<kLanes>::kRunning / kLanes;
    // Only the upper end needs a limit: the largest magnitude has the lowest code.
    const Vector highest = Vector{} + (kRound + (kLow - 1));
    // Minus the largest element over kLow. It works on bits, because a branch would be mispredicted
    // half of the time.
    const float first = float_of(block.largest | (block.largest_sign ^ 0x80000000)) / kLow;
    const float inverse = 1 / first;
    Sum<kLanes> xt, tt;
    for (size_t at = 0; at < kBlock; at += kLanes * kParts)
      for (size_t part = 0; part < kParts; ++part) {
        Vector c;
        std::memcpy(&c, block.x + at + part * kLanes, sizeof c);
        c *= inverse;
        const Vector shifted = c + kRound;
        const Vector t = (shifted < highest ? shifted : highest) - kRound;
        std::memcpy(block.t + at + part * kLanes, &t, sizeof t);
        xt.running[part] += c * t;
        tt.running[part] += t * t;
      }
    return scale_nearest(first * (xt.total() / tt.total()), kLow);
  }
};

// Format with codes of 8-bit floats; the scale comes from the largest magnitude.
template <typename Format>
struct Fp8 {
  static constexpr int kBits = 8;
  static constexpr int kTinyBits = 1;
  // Tiny blocks use only the codes 1 and -1.
  [[gnu::always_inline]] static uint8_t tiny(uint8_t code) {
    return code == 0 ? 0 : static_cast<uint8_t>((code & 0x80) | Format::kOne);
  }
  [[gnu::always_inline]] static float value(uint8_t code) { return Format::widen(code); }

  [[gnu::always_inline]] static uint16_t quantize(Block& block, const uint16_t*) {
    const uint16_t scale = scale_up(float_of(block.largest), Format::kLargest);
    const float inverse = 1 / bfloat_to_float(scale);
    for (size_t i = 0; i < kBlock; ++i) {
      const uint8_t code = Format::narrow(block.x[i] * inverse);
      block.code[i] = code;
      block.t[i] = Format::widen(code);
    }
    return scale;
  }
};

// Returns the bytes of `count` codes. With h = that number, byte i holds the codes i, i + h, i +
// 2h, ..., the first in its low bits. So loops over i process whole vectors.
//
// A field of less than a byte holds its code plus Format::kLow. So no field is negative, and a byte
// is the sum of its fields.
template <typename Format>
constexpr size_t packed_bytes(size_t count) {
  return (count * Format::kBits + 7) / 8;
}

// Packs the codes of a block. A byte with several fields is a sum of floats: t times powers of two,
// exact below 2^24. The sum vectorises, and its low bits are the byte.
template <typename Format>
[[gnu::always_inline]] inline void pack(const Block& block, size_t count,
                                        std::byte* __restrict out) {
  const size_t bytes = packed_bytes<Format>(count);
  if constexpr (Format::kBits == 8) {
    std::memcpy(out, block.code, bytes);
  } else {
    // kRound, plus kLow in every field
    constexpr int kOnes = 255 / ((1 << Format::kBits) - 1);  // a 1 in every field
    constexpr float kBase = kRound + Format::kLow * kOnes;
    for (size_t i = 0; i < bytes; ++i) {
      float sum = kBase;
      for (size_t part = 0; part < 8 / Format::kBits; ++part)
        sum += block.t[i + part * bytes] * (1 << (part * Format::kBits));
      out[i] = static_cast<std::byte>(bits_of(sum));
    }
  }
}

// Chooses the codes and the scale. It is the second of three steps.
template <typename Format>
[[gnu::always_inline]] inline void choose(Block& block, const uint16_t* random) {
  constexpr auto kFirst = std::bit_cast<uint32_t>(kSmallestScaled);
  constexpr uint32_t kInfinite = 0x7f800000;
  if (block.largest >= kFirst && block.largest < kInfinite) [[likely]] {
    block.scale = Format::quantize(block, random);
    return;
  }
  block.scale = quantize_rare(block, Format::kTinyBits);
  for (uint8_t& code : block.code) code = Format::tiny(code);
}

// Writes a block and its residual. It is the third step. `count` < kBlock only for a tail, with
// values and residual padded by zeros.
template <typename Format, bool kResidual>
[[gnu::always_inline]] inline void finish(const Block& block, const float* old_residual,
                                          float* __restrict lost, size_t count, std::byte* out) {
  std::memcpy(out, &block.scale, kScaleBytes);
  pack<Format>(block, count, out + kScaleBytes);
  if (!kResidual) return;
  if (block.scale == kPoisonScale) [[unlikely]]
    return static_cast<void>(std::memmove(lost, old_residual, kBlock * sizeof(float)));
  const float value = scale_value(block.scale);
  for (size_t i = 0; i < kBlock; ++i) lost[i] = block.x[i] - block.t[i] * value;
}

// Number of whole blocks that are processed step by step. The dependency chains from a block's
// largest magnitude to its scale, and from its sums to the final scale, leave the processor idle.
// The same step of the next block fills that time. With more than two blocks, the prefetched data
// no longer fits.
inline constexpr size_t kGroup = 2;

// Quantizes `count` <= kGroup whole blocks.
template <typename Format, bool kResidual>
[[gnu::always_inline]] inline void quantize_group(Block* blocks, size_t count, const float* in,
                                                  const float* old_residual, float* lost,
                                                  const uint16_t* random, std::byte* out) {
  constexpr size_t kAhead =
      512;  // elements; the processor's own prefetching stops at the end of a page
  constexpr size_t kLine = 16;
  for (size_t b = 0; b < count; ++b) {
    const size_t at = b * kBlock;
    for (size_t line = at + kAhead; line < at + kAhead + kBlock; line += kLine)
      __builtin_prefetch(in + line);
    load<kResidual>(blocks[b], in + at, kResidual ? old_residual + at : nullptr);
  }
  for (size_t b = 0; b < count; ++b)
    choose<Format>(blocks[b], random == nullptr ? nullptr : random + b * kBlock);
  for (size_t b = 0; b < count; ++b) {
    const size_t at = b * kBlock;
    // Prefetched here and not with the input, to spread the load on memory evenly.
    for (size_t line = at + kAhead; kResidual && line < at + kAhead + kBlock; line += kLine) {
      __builtin_prefetch(old_residual + line);
      __builtin_prefetch(lost + line, 1);
    }
    finish<Format, kResidual>(blocks[b], kResidual ? old_residual + at : nullptr,
                              kResidual ? lost + at : nullptr, kBlock,
                              out + b * (kScaleBytes + packed_bytes<Format>(kBlock)));
  }
}

// Returns 16 random bits per element for `count` elements from element `at` on, or null without
// stochastic rounding. They are written to `bits`. Both numbers are multiples of four, because one
// random number serves four elements.
[[gnu::always_inline]] inline const uint16_t* draw(Stochastic rounding, size_t at, size_t count,
                                                   uint16_t* bits) {
  if (!rounding.on) return nullptr;
  for (size_t i = 0; i < count; i += 4) {
    const uint64_t four = random_at(rounding.key, (at + i) / 4);
    std::memcpy(bits + i, &four, sizeof four);
  }
  return bits;
}

// Quantizes all blocks, the tail in padded copies. Zeros change neither the largest magnitude nor
// the sums, and only the codes of the tail are written.
template <typename Format, bool kResidual>
[[gnu::always_inline]] inline void quantize_all(const float* in, ResidualSpan residual,
                                                size_t count, Stochastic rounding, std::byte* out) {
  Block blocks[kGroup];
  uint16_t bits[kGroup * kBlock];
  const size_t tail = count % kBlock, whole = count - tail;
  for (size_t at = 0; at < whole; at += kGroup * kBlock) {
    const size_t n = whole - at < kGroup * kBlock ? (whole - at) / kBlock : kGroup;
    quantize_group<Format, kResidual>(blocks, n, in + at, kResidual ? residual.from + at : nullptr,
                                      kResidual ? residual.to + at : nullptr,
                                      draw(rounding, at, n * kBlock, bits), out);
    out += n * (kScaleBytes + packed_bytes<Format>(kBlock));
  }
  if (tail == 0) return;
  float padded[kBlock] = {}, lost[kBlock] = {};
  std::memcpy(padded, in + whole, tail * sizeof(float));
  if (kResidual) std::memcpy(lost, residual.from + whole, tail * sizeof(float));
  load<kResidual>(blocks[0], padded, lost);
  choose<Format>(blocks[0], draw(rounding, whole, kBlock, bits));
  finish<Format, kResidual>(blocks[0], lost, lost, tail, out);
  if (kResidual) std::memcpy(residual.to + whole, lost, tail * sizeof(float));
}

// Decodes one block of `count` elements, or adds it to `out`. One pass per field of the bytes
// (packed_bytes()).
template <typename Format, bool kAdd>
[[gnu::always_inline]] inline void dequantize_block(const std::byte* in, float* __restrict out,
                                                    size_t count) {
  uint16_t wire;
  std::memcpy(&wire, in, kScaleBytes);
  const float scale = scale_value(wire);
  const auto* packed = reinterpret_cast<const uint8_t*>(in + kScaleBytes);
  const size_t bytes = packed_bytes<Format>(count);
  for (size_t part = 0; part < 8 / Format::kBits; ++part) {
    const size_t begin = part * bytes;
    const size_t end = begin + bytes < count ? begin + bytes : count;
    for (size_t i = 0; begin + i < end; ++i) {
      const auto code = static_cast<uint8_t>(packed[i] >> (part * Format::kBits));
      const float x = Format::value(code) * scale;
      out[begin + i] = kAdd ? out[begin + i] + x : x;
    }
  }
}

template <typename Format, bool kAdd>
[[gnu::always_inline]] inline void dequantize_all(const std::byte* in, float* out, size_t count) {
  constexpr size_t kWhole = kScaleBytes + packed_bytes<Format>(kBlock);
  const size_t whole = count / kBlock;
  for (size_t i = 0; i < whole; ++i)
    dequantize_block<Format, kAdd>(in + i * kWhole, out + i * kBlock, kBlock);
  if (count % kBlock != 0)
    dequantize_block<Format, kAdd>(in + whole * kWhole, out + whole * kBlock, count % kBlock);
}

// These choose the variant with or without residual or accumulation, for each instruction set.
template <typename Format>
[[gnu::always_inline]] inline void quantize_either(std::span<const float> in, ResidualSpan residual,
                                                   Stochastic rounding, Bytes out) {
  if (residual.empty())
    quantize_all<Format, false>(in.data(), {}, in.size(), rounding, out.data());
  else
    quantize_all<Format, true>(in.data(), residual, in.size(), rounding, out.data());
}

template <typename Format>
[[gnu::always_inline]] inline void dequantize_either(ConstBytes in, bool accumulate,
                                                     std::span<float> out) {
  if (accumulate)
    dequantize_all<Format, true>(in.data(), out.data(), out.size());
  else
    dequantize_all<Format, false>(in.data(), out.data(), out.size());
}

// Calls run(Format()) with the type that implements `format`. kLanes floats fit into a register.
template <size_t kLanes, typename Run>
[[gnu::always_inline]] inline void with_format(BlockFormat format, Run run) {
  switch (format) {
    case BlockFormat::kFp8E4M3:
      return run(Fp8<E4M3>());
    case BlockFormat::kFp8E5M2:
      return run(Fp8<E5M2>());
    case BlockFormat::kInt8:
      return run(Int8());
    case BlockFormat::kInt4:
      return run(Signed<4, kLanes>());
    case BlockFormat::kInt2:
      return run(Signed<2, kLanes>());
  }
}

}  // namespace ringdist::quantization
