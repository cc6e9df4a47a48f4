// Contract of every codec (codec/codec.h), tested for each example of each registry row, with and
// without rotation.
#include "codec/codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "kernel/cast.h"
#include "support/coding.h"

namespace ringdist {
namespace {

using test::Floats;
using test::Memory;

constexpr DType kTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
constexpr size_t kCounts[] = {0, 1, 2, 7, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025, 5000};
constexpr CodecSeed kSeed{0x1234567, 0x89abcdef};
constexpr uint64_t kRandomSeed = 20;

class CodecConformance : public testing::TestWithParam<std::string> {
 protected:
  const CodecPtr codec_ = test::codec_of(GetParam());
  const Codec& codec = *codec_;
  std::mt19937_64 random{kRandomSeed};
  testing::ScopedTrace trace{__FILE__, __LINE__, "random seed " + std::to_string(kRandomSeed)};

  Floats values(size_t count, DType dtype = DType::kFloat32) {
    return test::random_values(count, dtype, random);
  }

  // Returns the range [first, last) of the block that contains element i of `count`.
  std::pair<size_t, size_t> block_of(size_t i, size_t count) const {
    const auto block = static_cast<size_t>(codec.block());
    return {i / block * block, std::min(count, (i / block + 1) * block)};
  }
};

bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

TEST_P(CodecConformance, IsWhatItsNameSays) {
  const CodecPtr again = test::codec_of(codec.name());
  EXPECT_EQ(again->name(), codec.name());
  EXPECT_EQ(again->wire_id(), codec.wire_id());
  EXPECT_EQ(again->wire_parameters(), codec.wire_parameters());
  EXPECT_TRUE(std::has_single_bit(static_cast<uint64_t>(codec.block())));
  EXPECT_LE(codec.block(), Codec::kMaxBlock);
  EXPECT_TRUE(codec.contraction() || !codec.feedback_by_default());
  const size_t count = 1 << 16;
  const double bits =
      8.0 *
      static_cast<double>(test::encode(codec, values(count), DType::kFloat32, {}, kSeed).size()) /
      count;
  if (!codec.exact()) {
    EXPECT_NEAR(codec.bits(), bits, 0.02 * bits);
  }
}

TEST_P(CodecConformance, DecodesWhatItEncoded) {
  for (DType dtype : kTypes) {
    ASSERT_TRUE(codec.supports(dtype));
    for (size_t count : kCounts) {
      const Floats in = values(count, dtype);
      Memory bytes = test::encode(codec, in, dtype, {}, kSeed);
      const Floats out = test::decode(codec, bytes, dtype, kSeed, count);
      for (size_t i = 0; codec.exact() && i < count; ++i) ASSERT_EQ(out[i], in[i]);
      // decode() must ignore bytes after the encoding and return the number of bytes that it used.
      bytes.resize(bytes.size() + 9);
      Floats again(count);
      const Result<size_t> used = codec.decode(bytes, dtype, kSeed, false, again);
      ASSERT_TRUE(used.ok());
      EXPECT_EQ(used.value(), bytes.size() - 9);
      EXPECT_EQ(again, out);
    }
  }
}

TEST_P(CodecConformance, ResidualIsWhatWasLost) {
  for (DType dtype : kTypes) {
    for (size_t count : kCounts) {
      const Floats in = values(count, dtype);
      const Floats before = values(count);
      Floats after = before;
      const Memory bytes = test::encode(codec, in, dtype, after, kSeed);
      const Floats out = test::decode(codec, bytes, dtype, kSeed, count);
      for (size_t i = 0; i < count; ++i) {
        const float sum = in[i] + before[i];
        ASSERT_EQ(after[i], sum - out[i]) << i << " of " << count << " " << dtype_name(dtype);
      }
    }
  }
}

TEST_P(CodecConformance, KeepsValuesIfItSaysSo) {
  if (!codec.keeps_values()) GTEST_SKIP() << codec.name() << " is for gradients";
  constexpr size_t kCount = 5000;
  const Floats in = values(kCount);
  const Floats out = test::decode(codec, test::encode(codec, in, DType::kFloat32, {}, kSeed),
                                  DType::kFloat32, kSeed, kCount);
  for (size_t i = 0; i < kCount; ++i) {
    float largest = std::abs(in[i]);
    const auto [first, last] = block_of(i, kCount);
    for (size_t j = first; j < last; ++j) largest = std::max(largest, std::abs(in[j]));
    ASSERT_LE(std::abs(in[i] - out[i]), largest / 8) << i;
  }
}

TEST_P(CodecConformance, WhatIsLostMayGoElsewhere) {
  for (const size_t count : kCounts)
    for (const bool poisoned : {false, true}) {
      Floats in = values(count);
      if (poisoned && count > 0) in[count / 2] = std::numeric_limits<float>::infinity();
      const Floats old_residual = values(count);
      Floats both = old_residual;
      Floats next(count, -7.0f);
      const auto bytes = test::encode(codec, in, DType::kFloat32, both, kSeed);
      EXPECT_EQ(bytes, test::encode(codec, in, DType::kFloat32,
                                    {old_residual.data(), next.data(), count}, kSeed));
      for (size_t i = 0; i < count; ++i) ASSERT_TRUE(same_bits(next[i], both[i])) << i;
    }
}

TEST_P(CodecConformance, ZeroResidualChangesNoByte) {
  for (size_t count : kCounts) {
    const Floats in = values(count);
    Floats residual(count, 0.0f);
    EXPECT_EQ(test::encode(codec, in, DType::kFloat32, {}, kSeed),
              test::encode(codec, in, DType::kFloat32, residual, kSeed));
  }
}

TEST_P(CodecConformance, AccumulatingIsDecodingAndAdding) {
  for (DType dtype : kTypes) {
    for (size_t count : kCounts) {
      const Memory bytes = test::encode(codec, values(count, dtype), dtype, {}, kSeed);
      const Floats out = test::decode(codec, bytes, dtype, kSeed, count);
      const Floats before = values(count);
      Floats after = before;
      ASSERT_TRUE(codec.decode(bytes, dtype, kSeed, true, after).ok());
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(after[i], before[i] + out[i]) << i;
    }
  }
}

TEST_P(CodecConformance, EqualSeedsGiveEqualBytes) {
  const Floats in = values(3000);
  const Memory bytes = test::encode(codec, in, DType::kFloat32, {}, kSeed);
  EXPECT_EQ(bytes, test::encode(*test::codec_of(GetParam()), in, DType::kFloat32, {}, kSeed));
}

TEST_P(CodecConformance, WholeBlocksConcatenate) {
  const Floats all = values(5 * Codec::kMaxBlock + 77);
  const Memory whole = test::encode(codec, all, DType::kFloat32, {}, kSeed);
  const bool seeded =
      whole != test::encode(codec, all, DType::kFloat32, {}, {kSeed.shared + 1, kSeed.own + 1});
  if (codec.exact() || seeded) return;
  const auto block = static_cast<size_t>(codec.block());
  for (size_t cut : {block, 4 * block, 3 * static_cast<size_t>(Codec::kMaxBlock)}) {
    Memory parts = test::encode(codec, std::span(all).first(cut), DType::kFloat32, {}, kSeed);
    const Memory rest =
        test::encode(codec, std::span(all).subspan(cut), DType::kFloat32, {}, kSeed);
    parts.insert(parts.end(), rest.begin(), rest.end());
    EXPECT_EQ(parts, whole) << cut;
  }
}

double squared(const Floats& a, const Floats& minus) {
  double out = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]) - static_cast<double>(minus[i]);
    out += x * x;
  }
  return out;
}

TEST_P(CodecConformance, ContractsEveryFiniteInput) {
  if (!codec.contraction()) return;
  // Below this magnitude a codec need not reduce the error, according to its spec. There fp32 has
  // too few bits for a rotation, and 16-bit formats without a scale have none.
  const float floor = GetParam().ends_with("+h") ? 0x1p-100f : codec.block() == 1 ? 0x1p-133f : 0;
  for (size_t count : {1, 2, 3, 31, 100, 128, 256, 1000, 1024, 1300}) {
    for (const auto& [name, in] : test::nasty_inputs(count, random)) {
      const Memory bytes = test::encode(codec, in, DType::kFloat32, {}, kSeed);
      const Floats out = test::decode(codec, bytes, DType::kFloat32, kSeed, count);
      const double before = squared(in, Floats(count, 0.0f));
      const double after = squared(in, out);
      const float largest = std::abs(*std::max_element(
          in.begin(), in.end(), [](float a, float b) { return std::abs(a) < std::abs(b); }));
      SCOPED_TRACE(name + ", " + std::to_string(count) + " elements");
      if (largest < floor) {
        EXPECT_LE(after, 1.01 * before + static_cast<double>(count) * 0x1p-290);
      } else if (before == 0) {
        EXPECT_EQ(after, 0);
      } else {
        EXPECT_LT(after, before);
      }
    }
  }
}

// Checks that poison at index `at` of the input or the residual affects its own block only.
void check_poison(const Codec& codec, Floats in, Floats residual, size_t at,
                  std::pair<size_t, size_t> block) {
  Floats clean = in;
  Floats clean_residual = residual;
  clean[at] = 1;
  clean_residual[at] = 1;
  const size_t count = in.size();
  const Floats before = residual;
  const auto dtype = DType::kFloat32;
  const Floats out =
      test::decode(codec, test::encode(codec, in, dtype, residual, kSeed), dtype, kSeed, count);
  const Floats expected = test::decode(
      codec, test::encode(codec, clean, dtype, clean_residual, kSeed), dtype, kSeed, count);
  for (size_t i = 0; i < count; ++i) {
    const bool inside = i >= block.first && i < block.second;
    if (!inside) {
      ASSERT_TRUE(same_bits(out[i], expected[i])) << i;
      ASSERT_TRUE(same_bits(residual[i], clean_residual[i])) << i;
    } else {
      ASSERT_TRUE(block.second - block.first == 1 ? !is_finite(out[i]) : std::isnan(out[i])) << i;
      ASSERT_TRUE(same_bits(residual[i], before[i])) << i;
    }
  }
}

TEST_P(CodecConformance, PoisonStaysInItsBlock) {
  if (codec.exact()) return;
  constexpr float kMost = std::numeric_limits<float>::max();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (size_t count : {1, 100, 256, 1025, 2600}) {
    for (size_t at : {size_t{0}, count / 2, count - 1}) {
      for (auto [x, lost] : {std::pair(kNaN, 0.5f),
                             {kInfinity, 0.5f},
                             {-kInfinity, -1.0f},
                             {1.0f, kNaN},
                             {kMost, kMost}}) {
        SCOPED_TRACE("element " + std::to_string(at) + " of " + std::to_string(count) + " is " +
                     std::to_string(x) + " + " + std::to_string(lost));
        // fp16 saturates finite values, so a sum that overflows counts as poison, too.
        Floats in = values(count);
        Floats residual = values(count);
        in[at] = x;
        residual[at] = lost;
        check_poison(codec, in, residual, at, block_of(at, count));
      }
    }
  }
}

TEST_P(CodecConformance, ExactCodecsKeepEveryBit) {
  if (!codec.exact()) return;
  for (DType dtype : kTypes) {
    Memory stored(5000 * dtype_size(dtype));
    for (std::byte& b : stored) b = static_cast<std::byte>(random());
    Floats in(5000);
    // The values pass through fp32 once, as in codecs, which makes 16-bit NaNs canonical.
    widen(dtype, stored, in);
    narrow(dtype, in, stored);
    const Memory bytes = test::encode(codec, in, dtype, {}, kSeed);
    const Floats out = test::decode(codec, bytes, dtype, kSeed, in.size());
    Memory back(stored.size());
    narrow(dtype, out, back);
    EXPECT_EQ(back, stored) << dtype_name(dtype);
  }
}

// Decodes from a copy of exact size, so that a sanitizer detects every read beyond the end.
Result<size_t> decode_any(const Codec& codec, std::span<const std::byte> bytes, size_t count,
                          bool accumulate) {
  const auto copy = std::make_unique<std::byte[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), copy.get());
  Floats out(count, 1.0f);
  return codec.decode(ConstBytes(copy.get(), bytes.size()), DType::kFloat32, kSeed, accumulate,
                      out);
}

TEST_P(CodecConformance, RefusesTruncatedBytes) {
  for (size_t count : {1, 129, 1025, 9000}) {
    const Memory bytes = test::encode(codec, values(count), DType::kFloat32, {}, kSeed);
    for (size_t size = 0; size < bytes.size(); size += 1 + size / 16) {
      const auto got = decode_any(codec, ConstBytes(bytes).first(size), count, size % 2 == 0);
      ASSERT_FALSE(got.ok()) << size << " of " << bytes.size();
      EXPECT_EQ(got.error().kind(), ErrorKind::kProtocol);
      EXPECT_NE(got.error().message().find("codec "), std::string::npos);
    }
  }
}

TEST_P(CodecConformance, DamagedBytesEndInValuesOrAnError) {
  for (size_t count : {1, 100, 1024, 9000}) {
    const Memory good = test::encode(codec, values(count), DType::kFloat32, {}, kSeed);
    for (int round = 0; round < 100; ++round) {
      Memory bytes = good;
      for (uint64_t flips = 1 + random() % 8; flips > 0; --flips)
        bytes[random() % std::min<size_t>(bytes.size(), round % 2 == 0 ? 32 : bytes.size())] ^=
            static_cast<std::byte>(1 << random() % 8);
      const auto got = decode_any(codec, bytes, count, round % 3 == 0);
      if (got.ok()) {
        EXPECT_LE(got.value(), bytes.size());
      } else {
        EXPECT_EQ(got.error().kind(), ErrorKind::kProtocol);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, CodecConformance, testing::ValuesIn(test::all_specs()),
                         [](const auto& info) { return test::test_name(info.param); });

}  // namespace
}  // namespace ringdist
