#include <gtest/gtest.h>

#include "negotiation/stall/stall_query.h"

namespace ringdist {
namespace {

TEST(StallMessage, IsReadAsItWasWritten) {
  StallMessage message;
  message.kind = StallMessage::Kind::kFound;
  message.calls = {{"a", 1500, true}, {"b", 7, false}};
  message.query = 3;
  message.names = {"a", ""};
  message.lacks = 5;
  message.instead = "waits";
  message.found = {{"a", "rank 1"}};
  const auto read = StallMessage::decode(message.encode());
  ASSERT_TRUE(read.ok());
  const StallMessage& other = read.value();
  EXPECT_EQ(other.kind, message.kind);
  ASSERT_EQ(other.calls.size(), 2u);
  EXPECT_EQ(other.calls[0].name, "a");
  EXPECT_EQ(other.calls[0].milliseconds, 1500);
  EXPECT_TRUE(other.calls[0].is_late);
  EXPECT_FALSE(other.calls[1].is_late);
  EXPECT_EQ(other.query, 3u);
  EXPECT_EQ(other.names, message.names);
  EXPECT_EQ(other.lacks, 5u);
  EXPECT_EQ(other.instead, "waits");
  ASSERT_EQ(other.found.size(), 1u);
  EXPECT_EQ(other.found[0].awaits, "rank 1");
}

}  // namespace
}  // namespace ringdist
