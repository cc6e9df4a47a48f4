// Loops of kernel/round16.h as inlined templates, for the reason given in kernel/quantize_loops.h.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/buffers.h"
#include "kernel/counter_rng.h"
#include "kernel/half.h"
#include "kernel/residual_span.h"

namespace ringdist::rounding16 {

// Bits of inf. The structs below are formats, which store a value in 16 bits and read it.
inline constexpr uint32_t kInfinite = 0x7f800000;

// Limits a finite magnitude to the one with the bits `largest`. inf and NaN are unchanged.
[[gnu::always_inline]] constexpr float saturate(float x, uint32_t largest) {
  const auto u = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = u & 0x7fffffff;
  const uint32_t cut = select(magnitude > largest, largest, magnitude);
  return std::bit_cast<float>((u & 0x80000000) | select(magnitude < kInfinite, cut, magnitude));
}

struct Half {
  static constexpr bool kStochastic = false;
  [[gnu::always_inline]] static constexpr uint16_t narrow(float x, uint16_t) {
    return float_to_half(saturate(x, std::bit_cast<uint32_t>(65504.0f)));
  }
  [[gnu::always_inline]] static constexpr float widen(uint16_t x) { return half_to_float(x); }
};

struct BFloat {
  static constexpr bool kStochastic = false;
  [[gnu::always_inline]] static constexpr uint16_t narrow(float x, uint16_t) {
    return float_to_bfloat(saturate(x, 0x7f7f0000));
  }
  [[gnu::always_inline]] static constexpr float widen(uint16_t x) { return bfloat_to_float(x); }
};

// Adds random bits below the cut, so that they carry with a probability equal to the fraction. The
// low bits of the largest finite value and of inf are zeros, so neither can carry.
struct StochasticBFloat {
  static constexpr bool kStochastic = true;
  [[gnu::always_inline]] static constexpr uint16_t narrow(float x, uint16_t random) {
    const auto u = std::bit_cast<uint32_t>(saturate(x, 0x7f7f0000));
    const bool nan = (u & 0x7fffffff) > kInfinite;
    return static_cast<uint16_t>(select<uint32_t>(nan, kBFloatNaN, (u + random) >> 16));
  }
  [[gnu::always_inline]] static constexpr float widen(uint16_t x) { return bfloat_to_float(x); }
};

// Rounds `count` elements. `old_residual` and `lost` may be the same memory: element i depends on
// element i only, which the pragma asserts.
template <typename Type, bool kResidual>
[[gnu::always_inline]] inline void round_some(const float* in, const float* old_residual,
                                              float* lost, const uint16_t* random, size_t count,
                                              std::byte* __restrict out) {
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) {
    const float x = kResidual ? in[i] + old_residual[i] : in[i];
    const uint16_t stored = Type::narrow(x, Type::kStochastic ? random[i] : 0);
    std::memcpy(out + i * sizeof stored, &stored, sizeof stored);
    if (kResidual) {
      const float loss = x - Type::widen(stored);
      const bool finite = (std::bit_cast<uint32_t>(loss) & kInfinite) != kInfinite;
      lost[i] = std::bit_cast<float>(
          select(finite, std::bit_cast<uint32_t>(loss), std::bit_cast<uint32_t>(old_residual[i])));
    }
  }
}

// Rounds all elements, with random bits if the format needs them.
template <typename Type, bool kResidual>
[[gnu::always_inline]] inline void round_all(std::span<const float> in, ResidualSpan residual,
                                             uint64_t key, Bytes out) {
  if constexpr (!Type::kStochastic) {
    round_some<Type, kResidual>(in.data(), residual.from, residual.to, nullptr, in.size(),
                                out.data());
  } else {
    constexpr size_t kChunk = 128;
    uint64_t random[kChunk / 4];
    for (size_t at = 0; at < in.size(); at += kChunk) {
      const size_t n = in.size() - at < kChunk ? in.size() - at : kChunk;
      for (size_t i = 0; i < kChunk / 4; ++i) random[i] = random_at(key, at / 4 + i);
      uint16_t bits[kChunk];
      std::memcpy(bits, random, sizeof bits);
      round_some<Type, kResidual>(in.data() + at, kResidual ? residual.from + at : nullptr,
                                  kResidual ? residual.to + at : nullptr, bits, n,
                                  out.data() + 2 * at);
    }
  }
}

template <typename Type>
[[gnu::always_inline]] inline void round(std::span<const float> in, ResidualSpan residual,
                                         uint64_t key, Bytes out) {
  if (residual.empty())
    round_all<Type, false>(in, {}, key, out);
  else
    round_all<Type, true>(in, residual, key, out);
}

}  // namespace ringdist::rounding16
