// Functions name their instruction set themselves, for the reason given in kernel/reduce_avx2.cc.
#include "kernel/low_rank.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>

#include "kernel/counter_rng.h"
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
                 std::span<float> values, ResidualSpan residual) {
  best_loops().reconstruct(shape, left.data(), mean_right.data(), own_right.data(), values.data(),
                           residual.from, residual.to);
}

namespace {

constexpr uint32_t kInfinity = 0x7f800000;

uint32_t largest_magnitude(std::span<const float> values) {
  uint32_t most = 0;
  for (float x : values) most = std::max(most, std::bit_cast<uint32_t>(x) & 0x7fffffff);
  return most;
}

// Returns a power of two, which changes exponents only, that brings the largest element near 1.
// Then squares neither overflow nor vanish. Returns 0 for a column of zeros, and NaN if an element
// is not finite.
float scale_to_one(std::span<const float> column) {
  const uint32_t most = largest_magnitude(column);
  if (most >= kInfinity) return std::numeric_limits<float>::quiet_NaN();
  if (most == 0) return 0;
  return std::ldexp(1.0f, std::clamp(-std::ilogb(std::bit_cast<float>(most)), -126, 126));
}

// Uses the loops of multiply_right(), so sums have the same order on every machine.
float dot(std::span<const float> a, std::span<const float> b) {
  float out;
  best_loops().multiply_right({1, static_cast<int64_t>(a.size()), 1}, a.data(), nullptr, b.data(),
                              &out);
  return out;
}

float norm(std::span<const float> column) { return std::sqrt(dot(column, column)); }

// Orthonormalises `column` against the basis. Returns false if only rounding noise is left of it,
// which `column` then holds. NaN counts as independent, so that it reaches the result.
bool add_to_basis(std::span<const float> basis, std::span<float> column) {
  constexpr float kIndependent = 1e-5f;
  const size_t n = column.size();
  const float before = norm(column);
  for (size_t at = 0; at < basis.size(); at += n) {
    const auto other = basis.subspan(at, n);
    const float along = dot(column, other);
    for (size_t i = 0; i < n; ++i) column[i] -= along * other[i];
  }
  const float after = norm(column);
  if (!(after > kIndependent * before) && !std::isnan(after)) return false;
  const float factor = 1 / after;
  for (float& x : column) x *= factor;
  return true;
}

}  // namespace

void draw_noise(uint64_t seed, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(static_cast<int32_t>(random_at(seed, i) >> 32)) * 0x1p-31f;
}

void orthonormalise(const MatrixShape& shape, std::span<float> left) {
  const auto n = static_cast<size_t>(shape.rows);
  for (size_t k = 0; k < static_cast<size_t>(shape.rank); ++k) {
    const auto basis = left.first(k * n);
    const auto column = left.subspan(k * n, n);
    const float scale = scale_to_one(column);
    for (float& x : column) x *= scale;
    if (add_to_basis(basis, column)) continue;
    draw_noise(k, column);  // the seed is the column's number, so all ranks draw the same
    if (!add_to_basis(basis, column)) std::fill(column.begin(), column.end(), 0.0f);
  }
}

void keep_directions(const MatrixShape& shape, std::span<const float> from,
                     std::span<float> right) {
  const auto n = static_cast<size_t>(shape.columns);
  for (size_t at = 0; at < right.size(); at += n) {
    const auto column = from.subspan(at, n);
    const float scale = scale_to_one(column);
    if (scale == 0) continue;
    for (size_t i = 0; i < n; ++i) right[at + i] = column[i] * scale;
  }
}

bool all_finite(std::span<const float> values) { return largest_magnitude(values) < kInfinity; }

}  // namespace ringdist
