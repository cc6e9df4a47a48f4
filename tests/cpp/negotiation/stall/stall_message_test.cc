#include <gtest/gtest.h>

#include "negotiation/stall/stall_query.h"

namespace ringdist {
namespace {

TEST(StallMessage, IsReadAsItWasWritten) {
  StallMessage letter;
  letter.kind = StallMessage::Kind::kFound;
  letter.calls = {{"a", 1500, true}, {"b", 7, false}};
  letter.inquiry = 3;
  letter.names = {"a", ""};
  letter.lacks = 5;
  letter.instead = "waits";
  letter.found = {{"a", "rank 1"}};
  const auto read = StallMessage::decode(letter.encode());
  ASSERT_TRUE(read.ok());
  const StallMessage& other = read.value();
  EXPECT_EQ(other.kind, letter.kind);
  ASSERT_EQ(other.calls.size(), 2u);
  EXPECT_EQ(other.calls[0].name, "a");
  EXPECT_EQ(other.calls[0].milliseconds, 1500);
  EXPECT_TRUE(other.calls[0].is_late);
  EXPECT_FALSE(other.calls[1].is_late);
  EXPECT_EQ(other.inquiry, 3u);
  EXPECT_EQ(other.names, letter.names);
  EXPECT_EQ(other.lacks, 5u);
  EXPECT_EQ(other.instead, "waits");
  ASSERT_EQ(other.found.size(), 1u);
  EXPECT_EQ(other.found[0].awaits, "rank 1");
}

}  // namespace
}  // namespace ringdist
