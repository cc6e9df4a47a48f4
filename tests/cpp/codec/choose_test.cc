#include "codec/choose.h"

#include <gtest/gtest.h>

namespace ringdist {
namespace {

const std::vector<CodecCost> kCandidates{
    {"none", 32, 0}, {"bf16", 16, 1e-10}, {"int8", 8.125, 2e-10}, {"int4", 4.125, 3e-10}};

// 4 buckets of 1M elements that become ready every 10 ms.
BackwardPass pass() {
  BackwardPass out;
  for (int i = 1; i <= 4; ++i) out.buckets.push_back({i * 0.01, 1e6});
  out.end = 0.04;
  out.step = 0.06;
  return out;
}

LinkCost link(double bytes_per_second) { return {1e-4, 1 / bytes_per_second}; }

using Codecs = std::vector<size_t>;

TEST(ChooseCodecs, LeavesAFastLinkAlone) {
  const CodecChoice choice = choose_codecs(pass(), link(10e9), kCandidates);
  EXPECT_EQ(choice.codecs, Codecs(4, 0));
  EXPECT_EQ(choice.exposed, choice.exposed_plain);
}

TEST(ChooseCodecs, TakesTheHarshestWhereNothingHides) {
  const CodecChoice choice = choose_codecs(pass(), link(10e6), kCandidates);
  EXPECT_EQ(choice.codecs, Codecs(4, 3));
  EXPECT_LT(choice.exposed, choice.exposed_plain / 4);
}

TEST(ChooseCodecs, TakesTheGentlestThatHides) {
  // A bucket takes 8 ms uncompressed: all but the last are hidden, and bf16 leaves 4 ms of it, int8
  // 2.3 ms, int4 1.3 ms, below 3 % of the step.
  const CodecChoice choice = choose_codecs(pass(), link(0.5e9), kCandidates);
  EXPECT_EQ(choice.codecs, (Codecs{0, 0, 0, 3}));
  EXPECT_LE(choice.exposed, 0.03 * 0.06);
}

TEST(ChooseCodecs, DoesNotTakeACodecThatCostsMoreThanItSaves) {
  std::vector<CodecCost> slow = kCandidates;
  for (size_t i = 1; i < slow.size(); ++i) slow[i].seconds_per_element = 1e-6;
  EXPECT_EQ(choose_codecs(pass(), link(0.5e9), slow).codecs, Codecs(4, 0));
}

TEST(ChooseCodecs, HasNothingToChooseWithoutBuckets) {
  EXPECT_TRUE(choose_codecs({}, link(1e9), kCandidates).codecs.empty());
}

TEST(ChooseCodecs, SaysWhy) {
  const LinkCost slow = link(10e6);
  const CodecChoice choice = choose_codecs(pass(), slow, kCandidates);
  const std::string text = explain(choice, pass(), slow, kCandidates);
  EXPECT_NE(text.find("int4 for 4 of 4 buckets"), std::string::npos) << text;
  EXPECT_NE(text.find("10 MB/s"), std::string::npos) << text;
}

}  // namespace
}  // namespace ringdist
