#include "compress/choose_codecs.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

namespace ringdist {
namespace {

// Returns candidates for a link of this bandwidth. Each codec takes `coding` seconds per element.
std::vector<CodecCost> candidates(double bytes_per_second, double coding = 2e-10) {
  const double bit = 1 / bytes_per_second / 8;
  return {{"none", 32 * bit, {}, false},
          {"bf16", 16 * bit + coding, {}, false},
          {"int8", 8.125 * bit + coding, {}, false},
          {"int4", 4.125 * bit + coding, {}, false}};
}

// Adds a coarse candidate that takes the given seconds for each bucket.
std::vector<CodecCost> with_coarse(double bytes_per_second, std::vector<double> seconds) {
  std::vector<CodecCost> out = candidates(bytes_per_second);
  out.push_back({"coarse", 0, std::move(seconds), true});
  return out;
}

// Returns a pass with 4 buckets of 1M elements that become ready every 10 ms.
BackwardPass pass() {
  BackwardPass out;
  for (int i = 1; i <= 4; ++i) out.buckets.push_back({i * 0.01, 1e6});
  out.end = 0.04;
  out.step = 0.06;
  out.latency = 1e-4;
  return out;
}

using Codecs = std::vector<size_t>;

std::vector<double> four(double seconds) { return std::vector<double>(4, seconds); }

TEST(ChooseCodecs, LeavesAFastLinkAlone) {
  const CodecChoice choice = choose_codecs(pass(), candidates(10e9));
  EXPECT_EQ(choice.codecs, Codecs(4, 0));
  EXPECT_EQ(choice.exposed, choice.exposed_plain);
}

TEST(ChooseCodecs, TakesTheHarshestWhereNothingHides) {
  const CodecChoice choice = choose_codecs(pass(), candidates(10e6));
  EXPECT_EQ(choice.codecs, Codecs(4, 3));
  EXPECT_LT(choice.exposed, choice.exposed_plain / 4);
}

TEST(ChooseCodecs, TakesTheGentlestThatHides) {
  // A bucket takes 9 ms uncompressed. All but the last are hidden; for that one bf16 leaves 4.7 ms
  // exposed, int8 2.6 ms, and int4 1.4 ms, below 3 % of the step.
  const CodecChoice choice = choose_codecs(pass(), candidates(0.45e9));
  EXPECT_EQ(choice.codecs, (Codecs{0, 0, 0, 3}));
  EXPECT_LE(choice.exposed, 0.03 * 0.06);
}

TEST(ChooseCodecs, RoundsNothingForLessThanATenthOfTheStep) {
  // Uncompressed takes 66.8 ms, int4 61.2 ms.
  const CodecChoice choice = choose_codecs(pass(), candidates(0.6e9));
  EXPECT_EQ(choice.codecs, Codecs(4, 0));
  EXPECT_GT(choice.exposed, 0.03 * 0.06);
}

TEST(ChooseCodecs, TakesAHarsherOneThatIsWorthIt) {
  BackwardPass one;
  one.buckets.push_back({1, 1e6});
  one.end = one.step = 1;
  // The least lossy codec that hides the bucket saves 8 % of the step, the next one 10.7 %.
  std::vector<CodecCost> costs(3);
  for (size_t i = 0; i < costs.size(); ++i) costs[i].seconds = {std::array{0.12, 0.03, 0.0}[i]};
  EXPECT_EQ(choose_codecs(one, costs).codecs, Codecs{2});
  costs[2].seconds = {0.01};
  EXPECT_EQ(choose_codecs(one, costs).codecs, Codecs{0});
}

// int4 takes 52 ms per bucket and ends after 217 ms, of which 177 ms are exposed. With the 60 ms
// of the step this gives 237 ms.
TEST(ChooseCodecs, TakesACoarseOneForMuch) {
  EXPECT_EQ(choose_codecs(pass(), with_coarse(10e6, four(0.01))).codecs, Codecs(4, 4));
  // The limit for four buckets is 0.4 * 237 - 60 + 40 - 10 = 64.9 ms.
  EXPECT_EQ(choose_codecs(pass(), with_coarse(10e6, four(0.016))).codecs, Codecs(4, 4));
  EXPECT_EQ(choose_codecs(pass(), with_coarse(10e6, four(0.0165))).codecs, Codecs(4, 3));
}

TEST(ChooseCodecs, TakesNoCoarseOneWhereAGentlerHides) {
  EXPECT_EQ(choose_codecs(pass(), with_coarse(10e9, four(0))).codecs, Codecs(4, 0));
  EXPECT_EQ(choose_codecs(pass(), with_coarse(0.45e9, four(0))).codecs, (Codecs{0, 0, 0, 3}));
}

TEST(ChooseCodecs, TakesNoCoarseOneThatIsNotOffered) {
  const double never = std::numeric_limits<double>::infinity();
  EXPECT_EQ(choose_codecs(pass(), with_coarse(10e6, four(never))).codecs, Codecs(4, 3));
}

TEST(ChooseCodecs, DoesNotTakeACodecThatCostsMoreThanItSaves) {
  EXPECT_EQ(choose_codecs(pass(), candidates(0.45e9, 1e-6)).codecs, Codecs(4, 0));
}

TEST(ChooseCodecs, HasNothingToChooseWithoutBuckets) {
  EXPECT_TRUE(choose_codecs({}, candidates(1e9)).codecs.empty());
}

TEST(ChooseCodecs, SaysWhy) {
  const CodecChoice choice = choose_codecs(pass(), candidates(10e6));
  const std::string text = explain(choice, pass(), candidates(10e6));
  EXPECT_NE(text.find("int4 for 4 of 4 buckets"), std::string::npos) << text;
  EXPECT_NE(text.find("10 MB/s"), std::string::npos) << text;
  EXPECT_NE(text.find("by 1.57 s, so by 177 ms"), std::string::npos) << text;
}

TEST(ChooseCodecs, SaysWhyNot) {
  const CodecChoice choice = choose_codecs(pass(), candidates(0.6e9));
  const std::string text = explain(choice, pass(), candidates(0.6e9));
  EXPECT_NE(text.find("by 6.77 ms; no codec makes the step a tenth shorter"), std::string::npos)
      << text;
}

}  // namespace
}  // namespace ringdist
