// The largest of a block of values, for codec `topk`. Any thread. Same result on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ringdist {

inline constexpr size_t kSelectBlock = 1024;

// sum[i] = in[i] + residual[i] (null: in[i]); returns the largest bits of a magnitude, at least
// those of inf (0x7f800000) if a sum is not finite. The loop that feeds select_largest().
uint32_t sum_block(const float* in, const float* residual, size_t count, float* sum);

// Writes the indices of the k values of largest magnitude, ascending; of equal ones the lower index
// goes first. 1 <= k <= count <= kSelectBlock, all finite; `largest` as sum_block() returned it.
// `indices` has room for kSelectBlock + 1, whatever k: what follows the k is overwritten.
// By bisection over the bits of magnitudes, which are ordered as the magnitudes are.
void select_largest(const float* values, size_t count, size_t k, uint32_t largest,
                    uint16_t* indices);

// The same without any choice of instruction set, for tests.
void select_largest_baseline(const float* values, size_t count, size_t k, uint32_t largest,
                             uint16_t* indices);

}  // namespace ringdist
