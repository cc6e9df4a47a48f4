// Messages for groups that cannot handle them yet, or no longer.
#include <gtest/gtest.h>

#include "engine/group/now.h"
#include "engine/progress/dispatcher.h"

namespace ringdist {
namespace {

constexpr UnknownGroupMessages::GroupKey kGroup{7, 1};
constexpr UnknownGroupMessages::GroupKey kOtherRank{7, 2};
constexpr Duration kTooLong = std::chrono::seconds(61);

MessageHeader message_to(const UnknownGroupMessages::GroupKey& key) {
  MessageHeader header{};
  header.nonce = key.first;
  header.destination = key.second;
  return header;
}

struct UnknownGroupMessagesTest : testing::Test {
  void keep_one(const UnknownGroupMessages::GroupKey& key) {
    unknown.keep(/*from=*/0, message_to(key), {}, kNow);
  }
  void keep_word(bool any_forming) {
    unknown.keep(make_notice(NoticeKind::kLeave, kGroup.first, 0, 3, 0), any_forming);
  }
  int words(uint64_t nonce = kGroup.first) const {
    int count = 0;
    unknown.for_each_notice(nonce, [&](const Notice&) { ++count; });
    return count;
  }

  UnknownGroupMessages unknown{std::make_shared<ScratchPool>()};
};

TEST_F(UnknownGroupMessagesTest, AreTakenOnceByTheGroupTheyName) {
  keep_one(kGroup);
  keep_one(kGroup);
  keep_one(kOtherRank);
  EXPECT_EQ(unknown.take(kGroup).size(), 2u);
  EXPECT_TRUE(unknown.take(kGroup).empty());
  EXPECT_EQ(unknown.count(), 1u);
}

TEST_F(UnknownGroupMessagesTest, TheirBytesAreLimited) {
  UnknownGroupMessages few(std::make_shared<ScratchPool>(), /*most_bytes=*/100);
  const std::vector<std::byte> payload(60);
  for (int i = 0; i < 2; ++i) few.keep(/*from=*/0, message_to(kGroup), payload, kNow);
  EXPECT_EQ(few.count(), 1u);
  EXPECT_EQ(few.take(kGroup).size(), 1u);
  few.keep(/*from=*/0, message_to(kGroup), payload, kNow);
  EXPECT_EQ(few.count(), 1u) << "there is room again";
}

TEST_F(UnknownGroupMessagesTest, NoticesStayForTheGroupsOtherRanks) {
  keep_word(false);
  EXPECT_EQ(words(), 1);
  EXPECT_EQ(words(), 1);
  EXPECT_EQ(words(8), 0);
}

TEST_F(UnknownGroupMessagesTest, WhatComesForAClosedGroupIsDropped) {
  unknown.close(kGroup);
  keep_one(kGroup);
  EXPECT_EQ(unknown.count(), 0u);
  keep_one(kOtherRank);
  EXPECT_EQ(unknown.count(), 1u) << "it is closed for one rank only";
  keep_word(/*any_forms=*/false);
  EXPECT_EQ(words(), 0);
  keep_word(/*any_forms=*/true);
  EXPECT_EQ(words(), 1) << "that may be another rank of it";
}

TEST_F(UnknownGroupMessagesTest, AreForgottenWhenNoGroupThatFormsMayWantThem) {
  keep_one(kGroup);
  unknown.forget_old(/*any_forms=*/false, kNow + kTooLong / 2);
  EXPECT_EQ(unknown.count(), 1u);
  unknown.forget_old(/*any_forms=*/true, kNow + kTooLong);
  EXPECT_EQ(unknown.count(), 1u);
  unknown.forget_old(/*any_forms=*/false, kNow + kTooLong);
  EXPECT_EQ(unknown.count(), 0u);
}

}  // namespace
}  // namespace ringdist
