// Blocks of codes with a scale. Every instruction set gives the bits of the baseline, and these
// follow the formats.
#include "kernel/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernel/block_format.h"
#include "kernel/fp8.h"
#include "kernel/quantize_isa.h"
#include "support/block_values.h"
#include "support/floats.h"

namespace ringdist {
namespace {

using Memory = std::vector<std::byte>;

constexpr float kMost = std::numeric_limits<float>::max();
constexpr float kLeast = std::numeric_limits<float>::denorm_min();

size_t bytes_of(BlockFormat format, size_t count) {
  const size_t whole = quantized_block_bytes(format, kQuantizeBlock);
  const size_t tail = count % kQuantizeBlock;
  return count / kQuantizeBlock * whole + (tail == 0 ? 0 : quantized_block_bytes(format, tail));
}

struct Coded {
  Memory bytes;
  Floats residual;
  Floats decoded;
};

Coded code(const QuantizeLoops& loops, BlockFormat format, const Floats& in, Floats residual,
           Stochastic rounding = {}) {
  Coded out{Memory(bytes_of(format, in.size())), std::move(residual), Floats(in.size(), 3.0f)};
  loops.quantize(format, in, out.residual, rounding, out.bytes);
  loops.dequantize(format, out.bytes, false, out.decoded);
  return out;
}

class Quantize : public testing::TestWithParam<BlockFormat> {
 protected:
  const BlockFormat format = GetParam();
  const uint32_t seed = std::random_device()();
  std::mt19937 random{seed};
  testing::ScopedTrace trace{__FILE__, __LINE__, "seed " + std::to_string(seed)};
};

TEST_P(Quantize, EveryInstructionSetGivesTheBaselinesBits) {
  const QuantizeLoops& baseline = *quantize_baseline();
  for (const QuantizeLoops* loops : {quantize_avx2(), quantize_avx512()}) {
    if (loops == nullptr) continue;
    for (int round = 0; round < 300; ++round) {
      const size_t count = 1 + random() % 1500;
      const Floats in = block_values(count, kQuantizeBlock, random);
      const Floats residual =
          random() % 2 == 0 ? Floats() : block_values(count, kQuantizeBlock, random);
      const Stochastic rounding{format == BlockFormat::kInt8 && random() % 2 == 0, random()};
      const Coded a = code(baseline, format, in, residual, rounding);
      const Coded b = code(*loops, format, in, residual, rounding);
      ASSERT_EQ(a.bytes, b.bytes);
      ASSERT_TRUE(same(a.residual, b.residual));
      ASSERT_TRUE(same(a.decoded, b.decoded));
      Floats sum_a = in, sum_b = in;
      baseline.dequantize(format, a.bytes, true, sum_a);
      loops->dequantize(format, a.bytes, true, sum_b);
      ASSERT_TRUE(same_but_for_nans(sum_a, sum_b));
    }
  }
}

TEST_P(Quantize, EveryInstructionSetDecodesAnyBytesAlike) {
  for (const QuantizeLoops* loops : {quantize_avx2(), quantize_avx512()}) {
    if (loops == nullptr) continue;
    for (int round = 0; round < 300; ++round) {
      const size_t count = 1 + random() % 400;
      Memory bytes(bytes_of(format, count));
      for (std::byte& b : bytes) b = static_cast<std::byte>(random());
      Floats a(count), b(count);
      quantize_baseline()->dequantize(format, bytes, false, a);
      loops->dequantize(format, bytes, false, b);
      ASSERT_TRUE(same_but_for_nans(a, b));
    }
  }
}

// Returns |x|^2 - |x - q|^2, computed without cancellation between huge and small values.
long double gain(const Floats& x, const Floats& q) {
  long double out = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const long double a = x[i], b = q[i];
    out += b * (2 * a - b);
  }
  return out;
}

TEST_P(Quantize, IsAContraction) {
  std::normal_distribution<float> normal;
  for (size_t count : {1, 2, 3, 5, 31, 127, 128}) {
    for (int exponent = -160; exponent <= 128; ++exponent) {
      for (int kind = 0; kind < 6; ++kind) {
        Floats in(count);
        for (size_t i = 0; i < count; ++i) {
          float x = normal(random);
          if (kind == 1) x = i == 0 ? 2 : 0x1p-5f * x;
          if (kind == 2) x = i % 2 == 0 ? 1 : -1;
          if (kind == 3) x = i == 0 ? -1 : 0.4999f;
          if (kind == 4) x = static_cast<float>(random() % 3) - 1;
          if (kind == 5) x = i == count - 1 ? 1 : 0.0625f;
          in[i] = std::clamp(std::ldexp(x, exponent), -kMost, kMost);
        }
        if (std::all_of(in.begin(), in.end(), [](float x) { return x == 0; })) continue;
        const Coded got = code(*quantize_baseline(), format, in, Floats(count));
        ASSERT_GT(gain(in, got.decoded), 0) << count << " of 2^" << exponent << ", kind " << kind;
        for (size_t i = 0; i < count; ++i) {
          ASSERT_TRUE(std::isfinite(got.decoded[i]));
          ASSERT_EQ(got.residual[i], in[i] - got.decoded[i]);
        }
      }
    }
  }
}

TEST_P(Quantize, ExtremesStayFiniteAndNear) {
  for (float largest : {kMost, std::nextafter(kMost, 0.0f), 0x1.fep127f, 0x1.02p127f, 0x1p127f}) {
    for (float x : {largest, -largest}) {
      const Coded got = code(*quantize_baseline(), format, {x, 0.0f, x / 2}, {});
      EXPECT_NEAR(got.decoded[0] / x, 1.0f, 0.13f);
      EXPECT_EQ(got.decoded[1], 0.0f);
    }
  }
  for (float x : {kLeast, -kLeast, 3 * kLeast, 0x1p-127f, -0x1.8p-101f}) {
    const Coded got = code(*quantize_baseline(), format, {0.0f, x}, {});
    EXPECT_EQ(got.decoded[0], 0.0f);
    EXPECT_GE(got.decoded[1] / x, 0.5f);
    EXPECT_LE(got.decoded[1] / x, 1.0f);
  }
}

TEST_P(Quantize, PoisonStaysInItsBlock) {
  constexpr size_t kCount = 2 * kQuantizeBlock + 9;
  for (float bad : {std::numeric_limits<float>::infinity(), -kMost * 2,
                    std::numeric_limits<float>::quiet_NaN()}) {
    Floats in(kCount, 1.0f);
    in[kQuantizeBlock + 5] = bad;
    const Coded got = code(*quantize_baseline(), format, in, Floats(kCount, 0.25f));
    for (size_t i = 0; i < kCount; ++i) {
      const bool inside = i / kQuantizeBlock == 1;
      EXPECT_EQ(std::isnan(got.decoded[i]), inside) << i;
      EXPECT_TRUE(!inside || got.residual[i] == 0.25f) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Quantize,
                         testing::Values(BlockFormat::kFp8E4M3, BlockFormat::kFp8E5M2,
                                         BlockFormat::kInt8, BlockFormat::kInt4,
                                         BlockFormat::kInt2));

TEST(QuantizeSigned, LargestTakesTheCodeWithoutCounterpart) {
  // All values are exactly representable: -1/2 times the codes -8, 7, 1 and 0.
  const Floats in{4.0f, -3.5f, -0.5f, 0.0f};
  EXPECT_EQ(code(*quantize_baseline(), BlockFormat::kInt4, in, {}).decoded, in);
  EXPECT_EQ(code(*quantize_baseline(), BlockFormat::kInt2, {3, -1.5f, 0}, {}).decoded,
            (Floats{3, -1.5f, 0}));
}

TEST(QuantizeStochastic, IsRightOnAverageAndRepeats) {
  Floats in(kQuantizeBlock);
  for (size_t i = 0; i < in.size(); ++i) in[i] = 0.01f * static_cast<float>(i);
  constexpr int kRounds = 4000;
  std::vector<double> mean(in.size());
  for (int key = 0; key < kRounds; ++key) {
    const Coded got =
        code(*quantize_baseline(), BlockFormat::kInt8, in, {}, {true, static_cast<uint64_t>(key)});
    for (size_t i = 0; i < in.size(); ++i) mean[i] += got.decoded[i] / kRounds;
    if (key == 7) {
      const Coded again = code(*quantize_baseline(), BlockFormat::kInt8, in, {}, {true, 7});
      EXPECT_EQ(got.bytes, again.bytes);
    }
  }
  // The step is 0.01, so one deviation is at most half of it. Six standard deviations of the mean
  // over kRounds are below 5e-4.
  for (size_t i = 0; i < in.size(); ++i) EXPECT_NEAR(mean[i], in[i], 5e-4) << i;
}

template <typename Format>
void check_fp8(int exponent_bits, int mantissa_bits, uint8_t top) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto value = [&](int c) {
    const int exponent = c >> mantissa_bits;
    const int mantissa = c & ((1 << mantissa_bits) - 1);
    const int implicit = exponent == 0 ? 0 : 1 << mantissa_bits;
    return std::ldexp(static_cast<float>(mantissa + implicit),
                      std::max(exponent, 1) - bias - mantissa_bits);
  };
  EXPECT_EQ(Format::kLargest, value(top));
  for (int c = 0; c <= top; ++c) {
    const float x = value(c);
    ASSERT_EQ(Format::widen(static_cast<uint8_t>(c)), x);
    ASSERT_EQ(Format::widen(static_cast<uint8_t>(c | 0x80)), -x);
    ASSERT_EQ(Format::narrow(x), c);
    ASSERT_EQ(Format::narrow(-x), c | 0x80);
    if (c == top) break;
    const float middle = (x + value(c + 1)) / 2;
    ASSERT_EQ(Format::narrow(middle), c + (c & 1)) << c;
    ASSERT_EQ(Format::narrow(std::nextafter(middle, 0.0f)), c);
    ASSERT_EQ(Format::narrow(std::nextafter(middle, kMost)), c + 1);
  }
  EXPECT_EQ(Format::narrow(Format::kLargest * 1.01f), top);
  EXPECT_EQ(Format::narrow(-kMost), top | 0x80);
}

TEST(Fp8, RoundsToNearestEvenAndSaturates) {
  check_fp8<E4M3>(4, 3, 0x7e);
  check_fp8<E5M2>(5, 2, 0x7b);
}

TEST(BlockScale, PatternsWithoutExponentArePowersOfTwo) {
  EXPECT_EQ(scale_value(0), 0.0f);
  for (int m = 1; m < 128; ++m) {
    EXPECT_EQ(scale_value(static_cast<uint16_t>(m)), std::ldexp(1.0f, m - 150));
    EXPECT_EQ(scale_value(static_cast<uint16_t>(m | 0x8000)), -std::ldexp(1.0f, m - 150));
  }
  EXPECT_EQ(scale_value(0x0080), 0x1p-126f);
  EXPECT_TRUE(std::isnan(scale_value(kPoisonScale)));
}

}  // namespace
}  // namespace ringdist
