#include <gtest/gtest.h>

#include "negotiation/timeline/timeline.h"

namespace ringdist {
namespace {

TEST(TimelineMessage, IsReadAsItWasWritten) {
  TimelineMessage message;
  message.kind = TimelineMessage::Kind::kPart;
  message.path = "/a";
  message.marks_cycles = true;
  message.time = 1;
  message.root_time = -2;
  message.offset = 3;
  message.bytes = {std::byte{7}, std::byte{0}};
  const auto read = TimelineMessage::decode(message.encode());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read.value().kind, message.kind);
  EXPECT_EQ(read.value().path, message.path);
  EXPECT_TRUE(read.value().marks_cycles);
  EXPECT_EQ(read.value().time, 1);
  EXPECT_EQ(read.value().root_time, -2);
  EXPECT_EQ(read.value().offset, 3);
  EXPECT_EQ(read.value().bytes, message.bytes);
  EXPECT_FALSE(TimelineMessage::decode(ConstBytes()).ok());
}

// A rank deletes and writes the path with a suffix.
TEST(TimelineMessage, APathThatWouldLoseItsSuffixOrItsFolderIsRefused) {
  TimelineMessage message;
  for (const std::string& path :
       {std::string("/home/a/keys\0", 13), std::string("/tmp/../etc/x"), std::string("/tmp/..")}) {
    message.path = path;
    EXPECT_FALSE(TimelineMessage::decode(message.encode()).ok()) << path;
  }
}

}  // namespace
}  // namespace ringdist
