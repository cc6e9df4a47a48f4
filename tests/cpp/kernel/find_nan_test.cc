#include "kernel/find_nan.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <span>
#include <vector>

namespace ringdist {
namespace {

// A dtype with bits of a NaN, of infinity and of its greatest number; 0 where there is none.
struct Bits {
  DType dtype;
  size_t size;
  uint64_t nan;
  uint64_t infinity;
  uint64_t most;
};

const std::vector<Bits> kBits = {
    {DType::kFloat64, 8, 0x7ff0000000000001, 0x7ff0000000000000, 0x7fefffffffffffff},
    {DType::kFloat32, 4, 0x7fc00000, 0x7f800000, 0x7f7fffff},
    {DType::kFloat16, 2, 0x7c01, 0x7c00, 0x7bff},
    {DType::kBFloat16, 2, 0x7fc0, 0x7f80, 0x7f7f},
    {DType::kFloat8E4M3FN, 1, 0x7f, 0, 0x7e},
    {DType::kFloat8E5M2, 1, 0x7d, 0x7c, 0x7b},
};

TEST(FindNan, ReturnsTheFirstOfEachDtype) {
  for (const Bits& bits : kBits) {
    const uint64_t sign = uint64_t{1} << (8 * bits.size - 1);
    for (const size_t count : {size_t{1}, size_t{511}, size_t{513}, size_t{2000}}) {
      std::vector<std::byte> values(count * bits.size + 1);
      // The address is not aligned.
      const auto all = std::span(values).subspan(1);
      const auto set = [&](size_t at, uint64_t value) {
        std::memcpy(all.data() + at * bits.size, &value, bits.size);
      };
      for (size_t i = 0; i < count; ++i)
        set(i, (i % 3 == 0 ? bits.infinity : bits.most) | (i % 2 == 0 ? sign : 0));
      EXPECT_EQ(find_nan(bits.dtype, all), -1);
      for (const size_t at : {count - 1, count / 2, size_t{0}}) {
        set(at, bits.nan | (at % 2 == 0 ? sign : 0));
        EXPECT_EQ(find_nan(bits.dtype, all), static_cast<int64_t>(at)) << bits.size << " bytes";
      }
    }
  }
}

TEST(FindNan, AComplexNumberHasTwoParts) {
  std::vector<float> values(10);
  values[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(find_nan(DType::kComplex64, std::as_bytes(std::span(values))), 2);
  EXPECT_EQ(find_nan(DType::kFloat32, std::as_bytes(std::span(values))), 5);
}

TEST(FindNan, IntegersHaveNone) {
  const std::vector<uint8_t> values(64, 0xff);
  for (const DType dtype :
       {DType::kInt64, DType::kInt8, DType::kUInt8, DType::kBool, DType::kBytes})
    EXPECT_EQ(find_nan(dtype, std::as_bytes(std::span(values))), -1);
  EXPECT_EQ(find_nan(DType::kFloat32, {}), -1);
}

}  // namespace
}  // namespace ringdist
