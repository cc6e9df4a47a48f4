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
  ReadyCount ready(3, difference);
  EXPECT_TRUE(ready.add(1, call_of(5)));
  EXPECT_FALSE(ready.is_complete({false, false, false}));
  EXPECT_FALSE(ready.is_complete({true, false, false}));
  EXPECT_TRUE(ready.is_complete({true, false, true}));
  EXPECT_TRUE(ready.add(0, call_of(6)));
  EXPECT_TRUE(ready.add(2, call_of(7)));
  EXPECT_TRUE(ready.is_complete({false, false, false}));
}

TEST(ReadyCount, KnowsWhoIsMissing) {
  ReadyCount ready(3, difference);
  ready.add(0, call_of(5));
  EXPECT_EQ(ready.missing(), 1u);
  ready.add(1, call_of(6));
  ready.add(2, call_of(7));
  EXPECT_EQ(ready.missing(), std::nullopt);
}

TEST(ReadyCount, TakesEachOnce) {
  ReadyCount ready(2, difference);
  EXPECT_TRUE(ready.add(1, call_of(5)));
  EXPECT_FALSE(ready.add(1, call_of(5)));
}

TEST(ReadyCount, NamesTheTwoThatDiffer) {
  ReadyCount ready(4, difference);
  ready.add(0, call_of(5, "sum"));
  ready.add(1, call_of(6, "sum"));
  ready.add(2, call_of(7, "max"));
  ready.add(3, call_of(8, "min"));
  EXPECT_EQ(ready.take().conflict, "rank 5 called sum, rank 7 called max");
}

TEST(ReadyCount, HandsOnWhatWasFoundBelow) {
  ReadyCount ready(2, difference);
  ready.add(0, call_of(5));
  ReadyCall other = call_of(6);
  other.conflict = "rank 6 called max, rank 9 called sum";
  ready.add(1, other);
  EXPECT_EQ(ready.take().conflict, other.conflict);
}

TEST(ReadyCount, KnowsWhoIsAbsentBelowAnyOfThem) {
  ReadyCount ready(2, difference);
  ready.add(0, call_of(5));
  ReadyCall other = call_of(6);
  other.absent = 9;
  ready.add(1, other);
  EXPECT_EQ(ready.take().absent, 9);
}

TEST(ReadyCount, CollectsWhatRanksSayForThemselves) {
  ReadyCount ready(2, difference);
  ReadyCall one = call_of(5);
  one.extras = {{5, {1}}};
  ReadyCall two = call_of(6);
  two.extras = {{6, {2}}, {7, {3}}};
  ready.add(0, one);
  ready.add(1, two);
  EXPECT_EQ(ready.take().extras.size(), 3u);
}

TEST(ReadyCount, TellsApartWhatHasTheSameWords) {
  ReadyCount ready(2, difference);
  ReadyCall one = call_of(5, "sum"), two = call_of(6, "sum");
  two.call.description.content = "another";
  ready.add(0, one);
  ready.add(1, two);
  EXPECT_EQ(ready.take().conflict, "rank 5 called sum, rank 6 called sum: sum is not another");
}

}  // namespace
}  // namespace ringdist
