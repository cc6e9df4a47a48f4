#include "kernel/select.h"

#include <algorithm>
#include <array>
#include <bit>

namespace ringdist {
namespace {

constexpr size_t kGroup = 16;  // elements tested together
using Magnitudes = std::array<int32_t, kSelectBlock>;

[[gnu::always_inline]] inline uint32_t sum_loop(const float* in, const float* residual,
                                                size_t count, float* __restrict sum) {
  uint32_t largest = 0;
  if (residual == nullptr)
    for (size_t i = 0; i < count; ++i) sum[i] = in[i];
  else
    for (size_t i = 0; i < count; ++i) sum[i] = in[i] + residual[i];
  for (size_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<uint32_t>(sum[i]) & 0x7fffffff);
  return largest;
}

// Returns the number of elements that reach `bound`. The padding is -1, which never does.
[[gnu::always_inline]] inline size_t at_least(const Magnitudes& all, size_t padded, int32_t bound) {
  int32_t found = 0;
  for (size_t i = 0; i < padded; ++i) found += all[i] >= bound ? 1 : 0;
  return static_cast<size_t>(found);
}

// Cut of a selection by magnitude.
struct Threshold {
  int32_t bound;  // all elements above it are chosen
  size_t equal;   // number of chosen elements that are equal to it
};

// Finds the cut by bisection. Invariant: at least k elements reach `low`, and fewer than k reach
// `high`.
[[gnu::always_inline]] inline Threshold find(const Magnitudes& all, size_t padded, size_t k,
                                             int32_t high) {
  int32_t low = 0;
  size_t above = 0;  // number of elements that reach `high`
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    const size_t found = at_least(all, padded, middle);
    if (found == k) return {middle - 1, 0};
    if (found > k) {
      low = middle;
    } else {
      high = middle;
      above = found;
    }
  }
  return {low, k - above};
}

// Implements select_largest(). Each index is written before the decision that it counts, so
// `indices` needs one entry more than are chosen.
[[gnu::always_inline]] inline void select_loop(const float* values, size_t count, size_t k,
                                               uint32_t largest, uint16_t* indices) {
  alignas(64) Magnitudes all;
  const size_t padded = (count + kGroup - 1) / kGroup * kGroup;
  for (size_t i = 0; i < count; ++i)
    all[i] = static_cast<int32_t>(std::bit_cast<uint32_t>(values[i]) & 0x7fffffff);
  for (size_t i = count; i < padded; ++i) all[i] = -1;
  const Threshold cut = find(all, padded, k, static_cast<int32_t>(largest) + 1);
  size_t equal = cut.equal;
  size_t chosen = 0;
  for (size_t at = 0; at < padded && chosen < k; at += kGroup) {
    int32_t any = 0;
    for (size_t i = 0; i < kGroup; ++i) any |= all[at + i] >= cut.bound ? 1 : 0;
    if (any == 0) continue;
    // No branches, because it is hard to predict which elements are chosen.
    for (size_t i = at; i < at + kGroup; ++i) {
      const bool ties = (all[i] == cut.bound) & (equal > 0);
      indices[chosen] = static_cast<uint16_t>(i);
      chosen += static_cast<size_t>(ties | (all[i] > cut.bound));
      equal -= static_cast<size_t>(ties);
    }
  }
}

uint32_t sum_baseline(const float* in, const float* residual, size_t count, float* sum) {
  return sum_loop(in, residual, count, sum);
}

using Sum = uint32_t (*)(const float*, const float*, size_t, float*);
using Select = void (*)(const float*, size_t, size_t, uint32_t, uint16_t*);

#if defined(__x86_64__)

[[gnu::target("avx2")]] uint32_t sum_avx2(const float* in, const float* residual, size_t count,
                                          float* sum) {
  return sum_loop(in, residual, count, sum);
}

[[gnu::target("avx2")]] void select_avx2(const float* values, size_t count, size_t k,
                                         uint32_t largest, uint16_t* indices) {
  select_loop(values, count, k, largest, indices);
}

bool has_avx2() { return __builtin_cpu_supports("avx2") != 0; }

Sum best_sum() { return has_avx2() ? sum_avx2 : sum_baseline; }
Select best_select() { return has_avx2() ? select_avx2 : select_largest_baseline; }

#else

Sum best_sum() { return sum_baseline; }
Select best_select() { return select_largest_baseline; }

#endif

}  // namespace

uint32_t sum_block(const float* in, const float* residual, size_t count, float* sum) {
  static const Sum best = best_sum();
  return best(in, residual, count, sum);
}

void select_largest(const float* values, size_t count, size_t k, uint32_t largest,
                    uint16_t* indices) {
  static const Select best = best_select();
  best(values, count, k, largest, indices);
}

void select_largest_baseline(const float* values, size_t count, size_t k, uint32_t largest,
                             uint16_t* indices) {
  select_loop(values, count, k, largest, indices);
}

}  // namespace ringdist
