// The parameter of codecs that send some of each block.
#pragma once

#include <string_view>

#include "codec/codec.h"

namespace ringdist {

// Elements per block of these codecs.
inline constexpr int kSparseBlock = 1024;
inline constexpr std::string_view kFractionText = "k of 1024, or a share: 10, 0.01";

// "10" is 10 of 1024; with a point it is a share, rounded to 1/1024 but at least one element:
// "0.01" is 10. Errors (kInvalidArgument): neither, or out of range.
Result<int> parse_fraction(std::string_view codec, std::string_view parameter);

// How many of a block of 1 <= count <= kShareBlock elements are sent: k of a whole one, the same
// share, rounded up, of a tail.
constexpr size_t kept_count(size_t count, size_t k) {
  return (k * count + kSparseBlock - 1) / kSparseBlock;
}

}  // namespace ringdist
