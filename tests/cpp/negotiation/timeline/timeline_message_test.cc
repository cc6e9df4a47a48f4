#include <gtest/gtest.h>

#include <limits>

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
  for (const std::string& path : {std::string("/home/a/keys\0", 13), std::string("/tmp/../etc/x"),
                                  std::string("/tmp/.."), std::string("../x"), std::string("..")}) {
    message.path = path;
    EXPECT_FALSE(TimelineMessage::decode(message.encode()).ok()) << path;
  }
}

// The receiver computes differences of the times, and the end of a part.
TEST(TimelineMessage, NumbersThatWouldOverflowAreRefused) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const auto is_read = [](int64_t time, int64_t root_time, int64_t offset) {
    TimelineMessage message;
    message.time = time;
    message.root_time = root_time;
    message.offset = offset;
    return TimelineMessage::decode(message.encode()).ok();
  };
  EXPECT_TRUE(is_read(kMost / 8, -kMost / 8, kMost / 8));
  EXPECT_FALSE(is_read(-kMost - 1, 0, 0));
  EXPECT_FALSE(is_read(kMost, 0, 0));
  EXPECT_FALSE(is_read(0, -kMost - 1, 0));
  EXPECT_FALSE(is_read(0, 0, kMost));
  EXPECT_FALSE(is_read(0, 0, -1));
}

}  // namespace
}  // namespace ringdist
