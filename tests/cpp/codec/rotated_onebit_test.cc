// `onebit+h` has its own loops. Their bytes, values and residuals must equal those of the general
// rotation and codec.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "codec/rotated.h"
#include "kernel/rotated_sign.h"
#include "support/floats.h"

namespace ringdist {
namespace {

constexpr uint64_t kRotatedSeed = 19;
constexpr CodecSeed kCoding{5, 6};

// Returns blocks of every kind next to each other, and a tail.
Floats mixed_blocks(std::mt19937& random) {
  std::normal_distribution<float> normal;
  constexpr float kScales[] = {1,       0,       0x1p-140f, 0x1p-120f, 0x1p-62f, 0x1p-59f,
                               0x1p57f, 0x1p62f, 0x1p99f,   0x1p120f,  1e-3f,    1};
  Floats out;
  for (const float scale : kScales)
    for (size_t i = 0; i < kSignBlock; ++i) out.push_back(scale * normal(random));
  for (size_t i = 0; i < 100; ++i) out.push_back(normal(random));
  out[11 * kSignBlock + 7] = std::numeric_limits<float>::infinity();
  out[9 * kSignBlock + 8] = std::numeric_limits<float>::quiet_NaN();
  out[10 * kSignBlock + 9] = -0.0f;
  return out;
}

class RotatedOnebit : public testing::Test {
 protected:
  testing::ScopedTrace trace{__FILE__, __LINE__, "seed " + std::to_string(kRotatedSeed)};
  std::mt19937 random{kRotatedSeed};
  CodecPtr fast, general;

  void SetUp() override {
    if (rotated_sign_loops() == nullptr) GTEST_SKIP() << "no AVX2";
    const CodecPtr onebit = parse_codec("onebit").value();
    fast = rotate_onebit(onebit);
    general = std::make_shared<RotatedCodec>(onebit);
  }

  struct Encoded {
    std::vector<std::byte> bytes;
    Floats residual;
  };

  static Encoded encode(const Codec& codec, const Floats& in, Floats residual) {
    Encoded out;
    out.bytes.resize(codec.max_bytes(static_cast<int64_t>(in.size()), DType::kFloat32));
    EXPECT_EQ(codec.encode(in, DType::kFloat32, residual, kCoding, out.bytes), out.bytes.size());
    out.residual = std::move(residual);
    return out;
  }

  static Floats decode(const Codec& codec, ConstBytes bytes, bool accumulate, Floats into) {
    const auto used = codec.decode(bytes, DType::kFloat32, kCoding, accumulate, into);
    EXPECT_TRUE(used.ok());
    return into;
  }
};

TEST_F(RotatedOnebit, EncodesAsTheGeneralWay) {
  for (int turn = 0; turn < 20; ++turn) {
    const Floats in = mixed_blocks(random);
    for (const Floats& residual : {Floats(), Floats(in.size(), 0.25f), mixed_blocks(random)}) {
      const Encoded got = encode(*fast, in, residual);
      const Encoded expected = encode(*general, in, residual);
      EXPECT_EQ(got.bytes, expected.bytes);
      EXPECT_TRUE(same(got.residual, expected.residual));
    }
  }
}

TEST_F(RotatedOnebit, DecodesAsTheGeneralWay) {
  for (int turn = 0; turn < 20; ++turn) {
    const Floats in = mixed_blocks(random);
    const Encoded encoded = encode(*general, in, {});
    for (const bool accumulate : {false, true})
      EXPECT_TRUE(same(decode(*fast, encoded.bytes, accumulate, in),
                       decode(*general, encoded.bytes, accumulate, in)));
  }
}

TEST_F(RotatedOnebit, ReadsAnyScaleAsTheGeneralWay) {
  constexpr size_t kBlock = 2 + kSignBlock / 8;
  std::vector<std::byte> bytes(kBlock);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  for (uint32_t field = 0; field <= 0xffff; field += 1) {
    const auto scale = static_cast<uint16_t>(field);
    std::memcpy(bytes.data(), &scale, sizeof scale);
    Floats a(kSignBlock), b(kSignBlock);
    const auto got = fast->decode(bytes, DType::kFloat32, kCoding, false, a);
    const auto expected = general->decode(bytes, DType::kFloat32, kCoding, false, b);
    ASSERT_EQ(got.ok(), expected.ok()) << field;
    ASSERT_TRUE(same(a, b)) << field;
  }
}

TEST_F(RotatedOnebit, RefusesWhatIsCutOff) {
  const Floats in(2 * kSignBlock + 10, 1.0f);
  const Encoded encoded = encode(*fast, in, {});
  for (size_t size = 0; size < encoded.bytes.size(); ++size) {
    Floats out(in.size());
    const ConstBytes cut = ConstBytes(encoded.bytes).first(size);
    EXPECT_FALSE(fast->decode(cut, DType::kFloat32, kCoding, false, out).ok()) << size;
  }
}

}  // namespace
}  // namespace ringdist
