// Sign flips of the randomised rotation (kernel/hadamard.h) in an AVX2 register. Include it only in
// files for AVX2.
#pragma once

#include <immintrin.h>

#include <cstddef>

namespace ringdist::avx2 {

// Flips the signs of those of 8 floats that have their bit set in `signs`, lowest bit first.
[[gnu::target("avx2"), gnu::always_inline]] inline __m256 flip(__m256 x, std::byte signs) {
  const __m256i to_top = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
  const __m256i bits = _mm256_sllv_epi32(_mm256_set1_epi32(static_cast<int>(signs)), to_top);
  return _mm256_xor_ps(x, _mm256_and_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(-0.0f)));
}

}  // namespace ringdist::avx2
