// Guarantees of onebit, topk, randomk and lossless beyond the conformance suite.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "kernel/cast.h"
#include "support/coding.h"

namespace ringdist {
namespace {

using test::codec_of;
using test::decode;
using test::encode;
using test::Floats;
using test::Memory;

constexpr CodecSeed kSeed{5, 6};
constexpr auto kType = DType::kFloat32;
constexpr uint64_t kRandomSeed = 21;

Floats normal_values(size_t count) {
  std::mt19937 random(kRandomSeed);
  std::normal_distribution<float> normal;
  Floats out(count);
  for (float& x : out) x = normal(random);
  return out;
}

Floats through(std::string_view spec, const Floats& in, CodecSeed seed = kSeed) {
  const CodecPtr codec = codec_of(spec);
  return decode(*codec, encode(*codec, in, kType, {}, seed), kType, seed, in.size());
}

size_t sent(const Floats& decoded) {
  return static_cast<size_t>(
      std::count_if(decoded.begin(), decoded.end(), [](float x) { return x != 0; }));
}

// Checks that `in` encodes to the bytes `hex` (hex digits and spaces), and that these decode to
// `expected`.
void check_example(std::string_view spec, const Floats& in, std::string_view hex,
                   const Floats& expected) {
  constexpr CodecSeed kZero{0, 0};
  const CodecPtr codec = codec_of(spec);
  const Memory bytes = encode(*codec, in, kType, {}, kZero);
  std::string got;
  for (std::byte b : bytes) {
    got += "0123456789abcdef"[static_cast<unsigned>(b) >> 4];
    got += "0123456789abcdef"[static_cast<unsigned>(b) & 15];
  }
  std::string wanted(hex);
  std::erase(wanted, ' ');
  EXPECT_EQ(got.substr(0, wanted.size()), wanted) << spec;
  EXPECT_EQ(decode(*codec, bytes, kType, kZero, in.size()), expected) << spec;
}

TEST(SpecExamples, AreTrue) {
  const Floats in{1, -2, 3, -6};
  const Floats tiny{0, -0x1.8p-140f, 0, 0};
  check_example("onebit", in, "40 40  0a", {3, -3, 3, -3});
  check_example("onebit", {tiny.begin(), tiny.end() - 1}, "01 89  02", {0, -0x1p-140f, 0});
  check_example("topk:512", in, "02 00 40 40  03 00 c0 c0", {0, 0, 3, -6});
  check_example("topk:512", tiny, "00 00 00 00  01 80 00 83", tiny);
  check_example("randomk:512", in, "00 c0 40 40", {0, -2, 3, 0});
  check_example("onebit+h", in, "40 40  06", {0, 0, 0, -6});
  check_example("lossless", in, "12000000 1000 0000803f 000000c0 00004040 0000c0c0", in);
  Floats repeated;
  for (int i = 0; i < 8; ++i) repeated.insert(repeated.end(), {1, -1, 1, -2});
  check_example("lossless", repeated,
                "6b000000 6900 7f 80 11 2000 88888888 000000 010000 000000 010000", repeated);
}

TEST(Onebit, SendsSignsTimesTheMeanMagnitude) {
  const Floats in = normal_values(256);
  double mean = 0;
  for (float x : in) mean += std::abs(x) / 256;
  const Floats out = through("onebit", in);
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_EQ(std::signbit(out[i]), std::signbit(in[i]));
    EXPECT_NEAR(std::abs(out[i]), mean, mean / 256);
  }
}

TEST(Onebit, OfAlmostNothingTheLargestIsSent) {
  Floats in(256, 0.0f);
  in[77] = -0x1.8p-140f;
  const Floats out = through("onebit", in);
  EXPECT_EQ(out[77], -0x1p-140f);
  EXPECT_EQ(sent(out), 1u);
}

TEST(Topk, SendsTheLargest) {
  Floats in = normal_values(3000);
  for (const auto& [spec, k] : {std::pair("topk:10", size_t{10}), {"topk:256", 256}}) {
    const Floats out = through(spec, in);
    for (size_t begin = 0; begin < in.size(); begin += 1024) {
      const size_t n = std::min<size_t>(1024, in.size() - begin);
      const size_t wanted = (k * n + 1023) / 1024;
      float least = INFINITY, most = 0;
      size_t found = 0;
      for (size_t i = begin; i < begin + n; ++i) {
        if (out[i] == 0) {
          most = std::max(most, std::abs(in[i]));
        } else {
          ++found;
          least = std::min(least, std::abs(in[i]));
          EXPECT_NEAR(out[i], in[i], std::abs(in[i]) / 256);
        }
      }
      EXPECT_EQ(found, wanted);
      EXPECT_GE(least, most);
    }
  }
}

TEST(Topk, OfEqualOnesTheFirstAreSent) {
  const Floats out = through("topk:3", Floats(1024, -2.0f));
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], i < 3 ? -2.0f : 0.0f);
}

TEST(Topk, RefusesIndicesThatAreOutOfPlace) {
  const CodecPtr codec = codec_of("topk:2");
  const Memory good = encode(*codec, normal_values(1024), kType, {}, kSeed);
  const auto refused = [&](uint16_t first, uint16_t second, size_t count) {
    Memory bytes = good;
    std::memcpy(bytes.data(), &first, sizeof first);
    std::memcpy(bytes.data() + 4, &second, sizeof second);
    Floats out(count);
    return !codec->decode(bytes, kType, kSeed, false, out).ok();
  };
  EXPECT_FALSE(refused(3, 4, 1024));
  EXPECT_TRUE(refused(4, 4, 1024));
  EXPECT_TRUE(refused(5, 4, 1024));
  EXPECT_TRUE(refused(3, 1024, 1024));
  EXPECT_TRUE(refused(3, 900, 900));
}

TEST(Randomk, IsLinearUnderOneSeed) {
  const Floats in = normal_values(2500);
  const Floats once = through("randomk:100", in);
  EXPECT_EQ(sent(once), 100u + 100u + (100 * (2500 - 2048) + 1023) / 1024);
  EXPECT_EQ(through("randomk:100", once), once);
  EXPECT_NE(through("randomk:100", in, {kSeed.shared + 1, kSeed.own}), once);
  EXPECT_EQ(through("randomk:100", in, {kSeed.shared, kSeed.own + 1}), once);
}

TEST(Randomk, EveryElementHasItsTurn) {
  std::vector<int> chosen(1024);
  for (uint64_t step = 0; step < 4000; ++step) {
    const Floats out = through("randomk:64", Floats(1024, 1.0f), {step, 0});
    for (size_t i = 0; i < chosen.size(); ++i) chosen[i] += out[i] != 0 ? 1 : 0;
  }
  // Each is expected 250 times; six standard deviations are 92.
  EXPECT_GT(*std::min_element(chosen.begin(), chosen.end()), 158);
  EXPECT_LT(*std::max_element(chosen.begin(), chosen.end()), 342);
}

TEST(Lossless, IsShorterForWhatGradientsLookLike) {
  const CodecPtr codec = codec_of("lossless");
  const Floats in = normal_values(100000);
  const auto ratio = [&](DType dtype) {
    return static_cast<double>(in.size() * dtype_size(dtype)) /
           static_cast<double>(encode(*codec, in, dtype, {}, kSeed).size());
  };
  EXPECT_GT(ratio(DType::kFloat32), 1.17);
  EXPECT_GT(ratio(DType::kBFloat16), 1.4);
  EXPECT_GT(ratio(DType::kFloat16), 1.05);
}

TEST(Lossless, NoiseCostsTwoBytesInAChunk) {
  std::mt19937 random(kRandomSeed);
  Floats in(20000);
  for (float& x : in) x = std::bit_cast<float>(static_cast<uint32_t>(random()));
  const CodecPtr codec = codec_of("lossless");
  EXPECT_LE(encode(*codec, in, kType, {}, kSeed).size(), 4 + 2 * 3 + in.size() * 4);
}

TEST(Lossless, EachRunOfCodesTakesItsBits) {
  const CodecPtr codec = codec_of("lossless");
  const Floats in = normal_values(1000);
  const Memory good = encode(*codec, in, kType, {}, kSeed);
  const auto first = static_cast<size_t>(good[6]), last = static_cast<size_t>(good[7]);
  const size_t bits_at = 8 + (last - first + 2) / 2;
  Floats out(in.size());
  // Moves a bit from each run to the next, so that the chunk's size still equals the sum of its
  // parts.
  for (size_t run = 0; run < 3; ++run) {
    Memory bytes = good;
    std::byte* const own = bytes.data() + bits_at + 2 * run;
    own[0] = static_cast<std::byte>(static_cast<unsigned>(own[0]) ^ 1);
    own[2] = static_cast<std::byte>(static_cast<unsigned>(own[2]) ^ 1);
    const auto got = codec->decode(bytes, kType, kSeed, false, out);
    ASSERT_FALSE(got.ok());
    const std::string why = got.error().message();
    EXPECT_TRUE(why.ends_with("end where it should") || why.ends_with("of its parts")) << why;
  }
}

TEST(Lossless, RefusesBytesBeyondItsChunks) {
  const CodecPtr codec = codec_of("lossless");
  Memory bytes = encode(*codec, Floats(100, 1.0f), kType, {}, kSeed);
  bytes.push_back(std::byte{0});
  bytes[0] = static_cast<std::byte>(static_cast<unsigned>(bytes[0]) +
                                    1);  // the length of the message itself
  Floats out(100);
  const auto got = codec->decode(bytes, kType, kSeed, false, out);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().message(), "codec lossless: 1 bytes too many");
}

TEST(Rotated, SpreadsWhatIsLost) {
  // One large element makes plain codecs lose the others. A rotation avoids that.
  Floats in = normal_values(256);
  in[100] = 60;
  const auto error = [&](std::string_view spec) {
    const Floats out = through(spec, in);
    double lost = 0, all = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      lost += (in[i] - out[i]) * (in[i] - out[i]);
      all += in[i] * in[i];
    }
    return lost / all;
  };
  EXPECT_GT(error("onebit"), 0.8);
  EXPECT_LT(error("onebit+h"), 0.4);
}

TEST(Rotated, DependsOnTheSharedSeedOnly) {
  const Floats in = normal_values(1000);
  EXPECT_EQ(through("int4+h", in, {1, 2}), through("int4+h", in, {1, 3}));
  EXPECT_NE(through("int4+h", in, {1, 2}), through("int4+h", in, {2, 2}));
}

}  // namespace
}  // namespace ringdist
