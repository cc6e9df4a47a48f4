// Selection of the largest values of a block, for codec `topk`. Any thread. Same result on every
// machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ringdist {

inline constexpr size_t kSelectBlock = 1024;

// Computes sum[i] = in[i] + residual[i], or in[i] if `residual` is null. Returns the bits of the
// largest magnitude. If a sum is not finite, the result is at least 0x7f800000 (inf). The result
// goes to select_largest(). `sum` overlaps neither input. NaN counts as larger than inf, because
// its bits are.
uint32_t sum_block(const float* in, const float* residual, size_t count, float* sum);

// Writes the indices of the k values of largest magnitude, ascending. Among equal magnitudes, lower
// indices are chosen. 1 <= k <= count <= kSelectBlock, all values are finite, and `largest` is the
// result of sum_block().
//
// `indices` has space for kSelectBlock + 1 entries, whatever k is: entries after the k are
// overwritten. The method is bisection over the bits of magnitudes, which have the same order as
// the magnitudes.
void select_largest(const float* values, size_t count, size_t k, uint32_t largest,
                    uint16_t* indices);

// Does the same without choosing an instruction set, for tests.
void select_largest_baseline(const float* values, size_t count, size_t k, uint32_t largest,
                             uint16_t* indices);

}  // namespace ringdist
