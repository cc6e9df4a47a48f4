#include "compress/parameter_table.h"

#include <gtest/gtest.h>

#include "fakes.h"

namespace ringdist {
namespace {

class ParameterTables : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_FALSE(table.use("int8")); }

  Result<Parameter*> find(const int& key, std::vector<int64_t> sizes) {
    return table.find(&key, [&, sizes] { return parameter_of(&key, sizes); });
  }

  std::vector<std::string> warnings;
  ParameterTable table{4, std::nullopt, 1024,
                       [this](const std::string& text) { warnings.push_back(text); }};
  int a = 0, b = 0;
};

TEST_F(ParameterTables, RulesHoldWhateverTheCodec) {
  Parameter& fixed = *table.add(parameter_of(&a, {64, 64}), "a", {"none", ""}).value();
  Parameter& finer = *table.add(parameter_of(&b, {64, 64}), "b", {"", "bf16"}).value();
  EXPECT_EQ(fixed.method->name(), "none");
  EXPECT_EQ(finer.method->name(), "bf16");
  ASSERT_FALSE(table.use("none"));
  EXPECT_EQ(finer.method->name(), "none");
  ASSERT_FALSE(table.use_for(finer, "int4"));
  EXPECT_EQ(finer.method->name(), "bf16");
}

TEST_F(ParameterTables, ACodecThatIsRefusedChangesNothing) {
  Parameter& one = *table.add(parameter_of(&a, {64, 64}), "a", {}).value();
  EXPECT_TRUE(table.use("int7"));
  EXPECT_EQ(one.method->name(), "int8");
  EXPECT_FALSE(table.add(parameter_of(&b, {64}), "b", {"int7", ""}).ok());
}

TEST_F(ParameterTables, ThoseThatNobodyToldOfAreNamedByTheirPlace) {
  Parameter& small = *find(a, {8}).value();
  EXPECT_EQ(small.name, "parameter.0");
  EXPECT_EQ(small.method->name(), "none");
  EXPECT_EQ(find(b, {64, 64}).value()->method->name(), "int8");
  EXPECT_EQ(find(a, {8}).value(), &small);
  EXPECT_TRUE(warnings.empty());
}

TEST_F(ParameterTables, AWarningNamesOneThatTheModelDoesNotHave) {
  ASSERT_TRUE(table.add(parameter_of(&a, {64, 64}), "a", {}).ok());
  ASSERT_TRUE(find(b, {2, 3}).ok());
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0],
            "ringdist: compress: a gradient of shape [2, 3] is of no parameter of the model that "
            "was given: it is compressed without rules, under the name parameter.1");
}

TEST_F(ParameterTables, AResidualMayBeLoadedBeforeItsParameterIsKnown) {
  const std::vector<float> row_major{0, 1, 2, 3, 4, 5};
  ASSERT_FALSE(table.load_residual("a", row_major));
  const ParameterInfo transposed{&a, nullptr, MemoryOrder({2, 3}, {1, 2}), false};
  Parameter& one = *table.add(transposed, "a", {}).value();
  ASSERT_NE(one.residual, nullptr);
  EXPECT_EQ(one.residual->values.on_host(), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(table.saved(), (std::vector<NamedResidual>{{"a", row_major}}));
  ASSERT_FALSE(table.load_residual("a", row_major));  // loaded after the parameter was added
  EXPECT_EQ(one.residual->values.on_host(), (std::vector<float>{0, 3, 1, 4, 2, 5}));
}

TEST_F(ParameterTables, ResidualsOfOtherSizesAreRefused) {
  ASSERT_TRUE(table.add(parameter_of(&a, {2, 3}), "a", {}).ok());
  EXPECT_FALSE(table.check_residual("a", 6));
  EXPECT_EQ(table.check_residual("a", 5).message(),
            "ringdist: compress: the residual of 'a' has 5 elements, the parameter 6");
  ASSERT_TRUE(table.add({&b, nullptr, MemoryOrder({2, 3}), true}, "b", {}).ok());
  EXPECT_EQ(
      table.check_residual("b", 6).message(),
      "ringdist: compress: the residual of 'b' is that of a complex parameter, which has none");
}

}  // namespace
}  // namespace ringdist
