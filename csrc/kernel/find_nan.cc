#include "kernel/find_nan.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

namespace ringdist {
namespace {

// Returns the index of the first number with bits, without the sign, above those of infinity.
template <typename Bits>
int64_t find_above(ConstBytes values, Bits infinity) {
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  constexpr size_t kBlock = 512;
  const size_t count = values.size() / sizeof(Bits);
  std::array<Bits, kBlock> block;
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t size = std::min(kBlock, count - begin);
    std::memcpy(block.data(), values.data() + begin * sizeof(Bits), size * sizeof(Bits));
    Bits most = 0;
    for (size_t i = 0; i < size; ++i)
      most = std::max(most, static_cast<Bits>(block[i] & static_cast<Bits>(~kSign)));
    if (most <= infinity) continue;
    for (size_t i = 0; i < size; ++i)
      if (static_cast<Bits>(block[i] & static_cast<Bits>(~kSign)) > infinity)
        return static_cast<int64_t>(begin + i);
  }
  return -1;
}

}  // namespace

int64_t find_nan(DType dtype, ConstBytes values) {
  constexpr uint16_t kHalf = 0x7c00;
  constexpr uint32_t kFloat = 0x7f800000;
  constexpr uint64_t kDouble = 0x7ff0000000000000;
  const auto number = [](int64_t part) { return part < 0 ? -1 : part / 2; };  // it has two parts
  switch (dtype) {
    case DType::kFloat64:
      return find_above<uint64_t>(values, kDouble);
    case DType::kFloat32:
      return find_above<uint32_t>(values, kFloat);
    case DType::kFloat16:
      return find_above<uint16_t>(values, kHalf);
    case DType::kBFloat16:
      return find_above<uint16_t>(values, 0x7f80);
    case DType::kFloat8E4M3FN:
      return find_above<uint8_t>(values, 0x7e);  // the largest number; there is no infinity
    case DType::kFloat8E5M2:
      return find_above<uint8_t>(values, 0x7c);
    case DType::kComplex32:
      return number(find_above<uint16_t>(values, kHalf));
    case DType::kComplex64:
      return number(find_above<uint32_t>(values, kFloat));
    case DType::kComplex128:
      return number(find_above<uint64_t>(values, kDouble));
    default:
      return -1;
  }
}

}  // namespace ringdist
