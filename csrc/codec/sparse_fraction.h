// Parameter of codecs that send only some elements of each block.
#pragma once

#include <string_view>

#include "codec/codec.h"

namespace ringdist {

// Number of elements per block of these codecs.
inline constexpr int kSparseBlock = 1024;
inline constexpr std::string_view kFractionText = "k of 1024, or a share: 10, 0.01";

// Parses the parameter of `codec` and returns k of 1024. "10" means 10 of 1024. A number with a
// point is a fraction, rounded to 1/1024 but at least one element, so "0.01" means 10. Error:
// kInvalidArgument, for other texts and values out of range.
Result<int> parse_fraction(std::string_view codec, std::string_view parameter);

// Returns how many elements of a block of 1 <= count <= kSparseBlock are sent: k of a whole block,
// and the same fraction, rounded up, of a tail. So a tail sends at least one element.
constexpr size_t kept_count(size_t count, size_t k) {
  return (k * count + kSparseBlock - 1) / kSparseBlock;
}

}  // namespace ringdist
