// Residuals and their storage.
#include "codec/residual.h"

#include <gtest/gtest.h>

#include "codec/gradient_memory.h"

namespace ringdist {
namespace {

TEST(ResidualStore, KeepsAResidualWhereItIs) {
  ResidualStore store;
  auto first = store.get("a.weight", 3, host_memory());
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first.value()->values.on_host(), std::vector<float>(3));
  EXPECT_FALSE(first.value()->nonzero);
  first.value()->values.data()[1] = 2;
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(store.get("p" + std::to_string(i), 5, host_memory()).ok());
  EXPECT_EQ(store.get("a.weight", 3, host_memory()).value(), first.value());
  EXPECT_EQ(first.value()->values.data()[1], 2);
}

TEST(ResidualStore, RefusesAnotherCount) {
  ResidualStore store;
  ASSERT_TRUE(store.get("a.weight", 3, host_memory()).ok());
  const Error error = store.get("a.weight", 4, host_memory()).error();
  ASSERT_TRUE(error);
  EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
  EXPECT_NE(error.message().find("'a.weight' has 3 elements, the parameter has 4"),
            std::string::npos)
      << error.message();
}

TEST(ResidualStore, ScalesClearsAndMeasuresTheResidual) {
  ResidualStore store;
  Residual& a = *store.get("a", 2, host_memory()).value();
  Residual& b = *store.get("b", 1, host_memory()).value();
  a.values.assign(std::vector<float>{3, 0});
  b.values.assign(std::vector<float>{4});
  a.nonzero = b.nonzero = true;
  EXPECT_DOUBLE_EQ(store.squared_norm(), 25);
  store.scale(0.5);
  EXPECT_EQ(a.values.data()[0], 1.5F);
  EXPECT_DOUBLE_EQ(store.squared_norm(), 6.25);
  store.clear();
  EXPECT_EQ(b.values.data()[0], 0);
  EXPECT_FALSE(b.nonzero);
  EXPECT_EQ(store.squared_norm(), 0);
}

TEST(Residual, ChangesWhenTheStepHasSucceeded) {
  ResidualStore store;
  Residual& a = *store.get("a", 3, host_memory()).value();
  a.values.assign(std::vector<float>{1, 2, 3});
  for (const bool succeeds : {false, true}) {
    const ResidualSpan both = a.begin();
    ASSERT_EQ(both.count, 3u);
    EXPECT_EQ(both.from, a.values.data());
    EXPECT_NE(both.from, both.to);
    std::fill_n(both.to, 3, 7.0F);
    EXPECT_EQ(a.values.on_host(), (std::vector<float>{1, 2, 3}));
    EXPECT_FALSE(a.nonzero);
    if (succeeds) a.commit(true);
  }
  EXPECT_EQ(a.values.on_host(), (std::vector<float>{7, 7, 7}));
  EXPECT_TRUE(a.nonzero);
}

TEST(Residual, WhichCodecsMayHaveFeedback) {
  const CodecPair none = parse_codec_pair("none", 2).value();
  EXPECT_TRUE(may_use_feedback(none));
  EXPECT_FALSE(feedback_by_default(none));
}

}  // namespace
}  // namespace ringdist
