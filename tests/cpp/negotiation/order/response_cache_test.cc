#include "negotiation/order/response_cache.h"

#include <gtest/gtest.h>

namespace ringdist {
namespace {

CallDescription of_words(const std::string& words) { return {words, words, 0, 8}; }

DecidedCall is_new(uint64_t id, const std::string& name, const std::string& words = "sum") {
  return {{id, name, of_words(words)}, true, {}};
}
DecidedCall again(uint64_t id) { return {{id, {}, {}}, false, {}}; }

TEST(ResponseCache, KnowsANameWithItsDescription) {
  ResponseCache table(3);
  EXPECT_EQ(table.find("a", of_words("sum")), nullptr);
  const auto entry = table.decide(1, is_new(7, "a"));
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(table.find("a", of_words("sum")), entry);
  EXPECT_EQ(table.find("a", of_words("max")), nullptr);
  EXPECT_EQ(table.find(7), entry);
  EXPECT_EQ(table.decide(2, again(7)), entry);
  EXPECT_EQ(table.decide(3, again(8)), nullptr);
}

TEST(ResponseCache, ForgetsWhatWasDecidedOnLeastLately) {
  ResponseCache table(2);
  table.decide(1, is_new(1, "a"));
  table.decide(2, is_new(2, "b"));
  table.decide(3, again(1));
  table.decide(4, is_new(3, "c"));
  table.forget(4);
  EXPECT_EQ(table.size(), 2u);
  EXPECT_NE(table.find("a", of_words("sum")), nullptr);
  EXPECT_EQ(table.find("b", of_words("sum")), nullptr);
  EXPECT_EQ(table.decide(5, again(2)), nullptr);
}

TEST(ResponseCache, AnIdIsKnownUntilNobodyCanNameItAnyMore) {
  ResponseCache table(1);
  table.decide(1, is_new(1, "a"));
  table.decide(2, is_new(2, "b"));
  table.forget(1);
  ASSERT_NE(table.find(1), nullptr);
  EXPECT_EQ(table.find(1)->name, "a");
  table.forget(2);
  EXPECT_EQ(table.find(1), nullptr);
  EXPECT_NE(table.find(2), nullptr);
}

TEST(ResponseCache, AnotherDescriptionTakesThePlaceOfTheFirst) {
  ResponseCache table(5);
  table.decide(1, is_new(1, "a", "sum"));
  table.decide(2, is_new(2, "a", "max"));
  EXPECT_EQ(table.size(), 2u);  // including the evicted one
  EXPECT_EQ(table.find("a", of_words("sum")), nullptr);
  EXPECT_EQ(table.find("a", of_words("max"))->id, 2u);
  EXPECT_EQ(table.find(1)->description.words, "sum");
}

TEST(ResponseCache, ExtrasStayUntilARankSaysOthers) {
  ResponseCache table(1);
  DecidedCall call = is_new(1, "a");
  call.extras = {{0, {5}}, {1, {6}}};
  const auto before = table.decide(1, call);
  call = again(1);
  call.extras = {{1, {8}}};
  const auto after = table.decide(2, call);
  EXPECT_EQ(before->extras, (ExtrasByRank{{0, {5}}, {1, {6}}}));  // its execution still reads it
  EXPECT_EQ(after->extras, (ExtrasByRank{{0, {5}}, {1, {8}}}));
  table.decide(3, is_new(2, "b"));
  EXPECT_EQ(table.last_extras("a", of_words("sum")), after->extras);
  EXPECT_TRUE(table.last_extras("a", of_words("max")).empty());
  table.forget(3);
  EXPECT_TRUE(table.last_extras("a", of_words("sum")).empty());
}

}  // namespace
}  // namespace ringdist
