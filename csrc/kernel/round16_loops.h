// The loops of round16.h as templates; see kernel/quantize_loops.h for why.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernel/counter_rng.h"
#include "kernel/residual_span.h"
#include "kernel/round16_types.h"

namespace ringdist::rounding16 {

// `owed` and `lost` may be the same, element by element: to which the pragma swears.
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
