// Functions name their instruction set themselves, for the reason given in kernel/reduce_avx2.cc.
#include "kernel/low_rank.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "kernel/low_rank_loops.h"

namespace ringdist {
namespace {

template <typename Loop, typename... Args>
[[gnu::noinline]] void baseline(Args... args) {
  Loop::template run<4>(args...);
}

const LowRankLoops& best_loops() {
  static const LowRankLoops* best = low_rank_avx512() != nullptr ? low_rank_avx512()
                                    : low_rank_avx2() != nullptr ? low_rank_avx2()
                                                                 : low_rank_baseline();
  return *best;
}

const float* data_or_null(std::span<const float> values) {
  return values.empty() ? nullptr : values.data();
}
float* data_or_null(std::span<float> values) { return values.empty() ? nullptr : values.data(); }

}  // namespace

const LowRankLoops* low_rank_baseline() {
  static constexpr LowRankLoops kLoops{baseline<low_rank::MultiplyRight>,
                                       baseline<low_rank::MultiplyLeft>,
                                       baseline<low_rank::Reconstruct>};
  return &kLoops;
}

#if defined(__x86_64__)

namespace {

template <typename Loop, typename... Args>
[[gnu::target("avx2"), gnu::noinline]] void avx2(Args... args) {
  Loop::template run<8>(args...);
}

template <typename Loop, typename... Args>
[[gnu::target("avx512f"), gnu::noinline]] void avx512(Args... args) {
  Loop::template run<16>(args...);
}

}  // namespace

const LowRankLoops* low_rank_avx2() {
  static const bool can = __builtin_cpu_supports("avx2") != 0;
  static constexpr LowRankLoops kLoops{avx2<low_rank::MultiplyRight>, avx2<low_rank::MultiplyLeft>,
                                       avx2<low_rank::Reconstruct>};
  return can ? &kLoops : nullptr;
}

const LowRankLoops* low_rank_avx512() {
  static const bool can = __builtin_cpu_supports("avx512f") != 0;
  static constexpr LowRankLoops kLoops{avx512<low_rank::MultiplyRight>,
                                       avx512<low_rank::MultiplyLeft>,
                                       avx512<low_rank::Reconstruct>};
  return can ? &kLoops : nullptr;
}

#else

const LowRankLoops* low_rank_avx2() { return nullptr; }
const LowRankLoops* low_rank_avx512() { return nullptr; }

#endif

void multiply_right(const MatrixShape& shape, std::span<const float> values,
                    std::span<const float> residual, std::span<const float> right,
                    std::span<float> left) {
  best_loops().multiply_right(shape, values.data(), data_or_null(residual), right.data(),
                              left.data());
}

void multiply_left(const MatrixShape& shape, std::span<const float> values,
                   std::span<const float> residual, std::span<const float> left,
                   std::span<float> right) {
  best_loops().multiply_left(shape, values.data(), data_or_null(residual), left.data(),
                             right.data());
}

void reconstruct(const MatrixShape& shape, std::span<const float> left,
                 std::span<const float> mean_right, std::span<const float> own_right,
                 std::span<float> values, std::span<float> residual) {
  best_loops().reconstruct(shape, left.data(), mean_right.data(), own_right.data(), values.data(),
                           data_or_null(residual));
}

void orthonormalise(const MatrixShape& shape, std::span<float> left) {
  const auto dot = [](const float* a, const float* b, int64_t n) {
    float out;
    best_loops().multiply_right({1, n, 1}, a, nullptr, b, &out);
    return out;
  };
  // Of a column, what is left after subtracting the others must not be rounding noise alone.
  constexpr float kIndependent = 1e-5f;
  const int64_t n = shape.rows;
  for (int64_t k = 0; k < shape.rank; ++k) {
    float* column = left.data() + k * n;
    const float before = std::sqrt(dot(column, column, n));
    for (int64_t earlier = 0; earlier < k; ++earlier) {
      const float* other = left.data() + earlier * n;
      const float along = dot(column, other, n);
      for (int64_t i = 0; i < n; ++i) column[i] -= along * other[i];
    }
    const float after = std::sqrt(dot(column, column, n));
    const bool depends = !(after > kIndependent * before) && !std::isnan(after);
    const float factor = depends ? 0.0f : 1 / after;
    for (int64_t i = 0; i < n; ++i) column[i] *= factor;
  }
}

bool all_finite(std::span<const float> values) {
  uint32_t most = 0;
  for (float x : values) most = std::max(most, std::bit_cast<uint32_t>(x) & 0x7fffffff);
  return most < 0x7f800000;
}

}  // namespace ringdist
