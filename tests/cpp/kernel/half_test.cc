#include "kernel/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "kernel/reference.h"

namespace ringdist {
namespace {

bool same_or_nan(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

TEST(Half, EveryFp16AndBf16WidensExactly) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const auto h = static_cast<uint16_t>(bits);
    ASSERT_TRUE(same_or_nan(half_to_float(h), reference::decode(h, 5, 10))) << std::hex << bits;
    ASSERT_TRUE(same_or_nan(bfloat_to_float(h), reference::decode(h, 8, 7))) << std::hex << bits;
  }
}

TEST(Half, EveryFp16AndBf16SurvivesTheRoundTrip) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const auto h = static_cast<uint16_t>(bits);
    const bool half_nan = (bits & 0x7fff) > 0x7c00;
    const bool bfloat_nan = (bits & 0x7fff) > 0x7f80;
    ASSERT_EQ(float_to_half(half_to_float(h)), half_nan ? kHalfNaN : h);
    ASSERT_EQ(float_to_bfloat(bfloat_to_float(h)), bfloat_nan ? kBFloatNaN : h);
  }
}

void expect_rounding(float f) {
  ASSERT_EQ(float_to_half(f), reference::encode(f, 5, 10)) << std::hexfloat << f;
  ASSERT_EQ(float_to_bfloat(f), reference::encode(f, 8, 7)) << std::hexfloat << f;
}

TEST(Half, RoundsToNearestEvenAroundEveryMiddle) {
  const float huge = std::numeric_limits<float>::infinity();
  for (int bits = 0; bits < 0x7c00; ++bits) {
    // Tests the midpoint to the next value, and its two neighbours. The value after 0x7bff counts
    // as 2^16.
    const double low = reference::decode(static_cast<uint16_t>(bits), 5, 10);
    const double high =
        bits == 0x7bff ? 65536 : reference::decode(static_cast<uint16_t>(bits + 1), 5, 10);
    const auto middle = static_cast<float>((low + high) / 2);
    for (float f : {middle, std::nextafter(middle, huge), std::nextafter(middle, 0.0f)}) {
      expect_rounding(f);
      expect_rounding(-f);
    }
  }
}

TEST(Half, RoundsAnyFloat) {
  std::mt19937 random(7);
  for (int i = 0; i < 300000; ++i)
    expect_rounding(std::bit_cast<float>(static_cast<uint32_t>(random())));
  for (float f : {0.0f, -0.0f, 65519.99f, 65520.0f, 65536.0f, 0x1p-24f, 0x1p-25f, 0x1.8p-25f,
                  3.4028235e38f, 0x1p-149f, std::numeric_limits<float>::infinity()})
    expect_rounding(f);
}

TEST(Half, NaNsBecomeCanonical) {
  for (uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffc12345u}) {
    EXPECT_EQ(float_to_half(std::bit_cast<float>(bits)), kHalfNaN);
    EXPECT_EQ(float_to_bfloat(std::bit_cast<float>(bits)), kBFloatNaN);
  }
}

}  // namespace
}  // namespace ringdist
