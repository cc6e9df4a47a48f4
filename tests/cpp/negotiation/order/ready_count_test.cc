#include <gtest/gtest.h>

#include "negotiation/order/negotiator.h"

namespace ringdist {
namespace {

ReadyCall call_of(int rank, const std::string& words = "sum") {
  ReadyCall out;
  out.call = {0, "a", {words, words, 0, 8}};
  out.rank = rank;
  return out;
}

std::string difference(const CallDescription& one, const CallDescription& other) {
  return one.content + " is not " + other.content;
}

TEST(ReadyCount, IsCompleteWhenAllAreReadyOrExcused) {
  ReadyCount tally(3, difference);
  EXPECT_TRUE(tally.add(1, call_of(5)));
  EXPECT_FALSE(tally.is_complete({false, false, false}));
  EXPECT_FALSE(tally.is_complete({true, false, false}));
  EXPECT_TRUE(tally.is_complete({true, false, true}));
  EXPECT_TRUE(tally.add(0, call_of(6)));
  EXPECT_TRUE(tally.add(2, call_of(7)));
  EXPECT_TRUE(tally.is_complete({false, false, false}));
}

TEST(ReadyCount, KnowsWhoIsMissing) {
  ReadyCount tally(3, difference);
  tally.add(0, call_of(5));
  EXPECT_EQ(tally.missing(), 1u);
  tally.add(1, call_of(6));
  tally.add(2, call_of(7));
  EXPECT_EQ(tally.missing(), std::nullopt);
}

TEST(ReadyCount, TakesEachOnce) {
  ReadyCount tally(2, difference);
  EXPECT_TRUE(tally.add(1, call_of(5)));
  EXPECT_FALSE(tally.add(1, call_of(5)));
}

TEST(ReadyCount, NamesTheTwoThatDiffer) {
  ReadyCount tally(4, difference);
  tally.add(0, call_of(5, "sum"));
  tally.add(1, call_of(6, "sum"));
  tally.add(2, call_of(7, "max"));
  tally.add(3, call_of(8, "min"));
  EXPECT_EQ(tally.take().conflict, "rank 5 called sum, rank 7 called max");
}

TEST(ReadyCount, HandsOnWhatWasFoundBelow) {
  ReadyCount tally(2, difference);
  tally.add(0, call_of(5));
  ReadyCall other = call_of(6);
  other.conflict = "rank 6 called max, rank 9 called sum";
  tally.add(1, other);
  EXPECT_EQ(tally.take().conflict, other.conflict);
}

TEST(ReadyCount, KnowsWhoIsAbsentBelowAnyOfThem) {
  ReadyCount tally(2, difference);
  tally.add(0, call_of(5));
  ReadyCall other = call_of(6);
  other.absent = 9;
  tally.add(1, other);
  EXPECT_EQ(tally.take().absent, 9);
}

TEST(ReadyCount, CollectsWhatRanksSayForThemselves) {
  ReadyCount tally(2, difference);
  ReadyCall one = call_of(5);
  one.extras = {{5, {1}}};
  ReadyCall two = call_of(6);
  two.extras = {{6, {2}}, {7, {3}}};
  tally.add(0, one);
  tally.add(1, two);
  EXPECT_EQ(tally.take().extras.size(), 3u);
}

TEST(ReadyCount, TellsApartWhatHasTheSameWords) {
  ReadyCount tally(2, difference);
  ReadyCall one = call_of(5, "sum"), two = call_of(6, "sum");
  two.call.description.content = "another";
  tally.add(0, one);
  tally.add(1, two);
  EXPECT_EQ(tally.take().conflict, "rank 5 called sum, rank 6 called sum: sum is not another");
}

}  // namespace
}  // namespace ringdist
