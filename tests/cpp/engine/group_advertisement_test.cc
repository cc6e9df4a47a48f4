#include "engine/membership/group_advertisement.h"

#include <gtest/gtest.h>

namespace ringdist {
namespace {

constexpr uint16_t kVersion = 8;

RankInfo entry_of_first() {
  RankInfo out;
  out.wire_version = kVersion;
  out.options_hash = 5;
  out.options = "codec=int8";
  return out;
}

GroupAdvertisement advertisement() {
  GroupAdvertisement out;
  out.first = entry_of_first();
  out.group_id = 77;
  out.generation = 3;
  out.name = "a group";
  out.timeout = Milliseconds(1500);
  out.job = "a job";
  out.note = "a note";
  out.most = 6;
  out.members = {{1, "@one", "10.0.0.1:1", "pid 1 on host a"}, {2, "@two", "10.0.0.2:2", "pid 2"}};
  return out;
}

TEST(GroupAdvertisement, IsReadAsItWasWritten) {
  const GroupAdvertisement given = advertisement();
  const auto read = GroupAdvertisement::decode(given.encode(), kVersion);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->group_id, given.group_id);
  EXPECT_EQ(read->generation, given.generation);
  EXPECT_EQ(read->name, given.name);
  EXPECT_EQ(read->timeout, given.timeout);
  EXPECT_EQ(read->job, given.job);
  EXPECT_EQ(read->note, given.note);
  EXPECT_EQ(read->most, given.most);
  EXPECT_EQ(read->first.options, given.first.options);
  ASSERT_EQ(read->members.size(), 2u);
  EXPECT_EQ(read->members[1].process, 2u);
  EXPECT_EQ(read->members[1].unix_name, "@two");
  EXPECT_EQ(read->members[1].tcp_address, "10.0.0.2:2");
  EXPECT_EQ(read->members[0].where, "pid 1 on host a");
}

TEST(GroupAdvertisement, WhatIsNoneIsNotRead) {
  const auto bytes = advertisement().encode();
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_FALSE(GroupAdvertisement::decode({bytes.data(), n}, kVersion)) << n << " of its bytes";
  auto more = bytes;
  more.push_back(std::byte{0});
  EXPECT_FALSE(GroupAdvertisement::decode(more, kVersion));
  GroupAdvertisement nobody = advertisement();
  nobody.members.clear();
  EXPECT_FALSE(GroupAdvertisement::decode(nobody.encode(), kVersion));
  for (const Milliseconds timeout : {Milliseconds(-1), kLongest + Milliseconds(1)}) {
    GroupAdvertisement endless = advertisement();
    endless.timeout = timeout;
    EXPECT_FALSE(GroupAdvertisement::decode(endless.encode(), kVersion)) << timeout.count();
  }
}

TEST(GroupAdvertisement, WhoDiffersIsRefusedByName) {
  const GroupAdvertisement group = advertisement();
  EXPECT_FALSE(group.refusal(entry_of_first()));

  RankInfo other = entry_of_first();
  other.wire_version = kVersion + 1;
  const auto read = GroupAdvertisement::decode(group.encode(), other.wire_version);
  ASSERT_TRUE(read) << "of another version";
  EXPECT_EQ(read->refusal(other).kind(), ErrorKind::kMismatch);
  EXPECT_EQ(read->refusal(other).message(),
            "this process cannot become a member: the group has wire version 8, this process 9");

  other = entry_of_first();
  other.options_hash = 6;
  other.options = "codec=int4";
  EXPECT_EQ(group.refusal(other).message(),
            "this process cannot become a member: the group has options codec=int8, this process "
            "codec=int4");

  other = entry_of_first();
  other.costs.constants.between.latency *= 2;
  EXPECT_FALSE(group.refusal(other)) << "rank 0's count";
  other.costs.file = "costs.json";
  EXPECT_NE(group.refusal(other).message().find("costs.json"), std::string::npos)
      << group.refusal(other).message();
}

}  // namespace
}  // namespace ringdist
