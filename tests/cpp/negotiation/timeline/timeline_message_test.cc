#include <gtest/gtest.h>

#include "negotiation/timeline/timeline.h"

namespace ringdist {
namespace {

TEST(TimelineMessage, IsReadAsItWasWritten) {
  TimelineMessage letter;
  letter.kind = TimelineMessage::Kind::kPart;
  letter.path = "/a";
  letter.marks_cycles = true;
  letter.time = 1;
  letter.root_time = -2;
  letter.offset = 3;
  letter.bytes = {std::byte{7}, std::byte{0}};
  const auto read = TimelineMessage::decode(letter.encode());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read.value().kind, letter.kind);
  EXPECT_EQ(read.value().path, letter.path);
  EXPECT_TRUE(read.value().marks_cycles);
  EXPECT_EQ(read.value().time, 1);
  EXPECT_EQ(read.value().root_time, -2);
  EXPECT_EQ(read.value().offset, 3);
  EXPECT_EQ(read.value().bytes, letter.bytes);
  EXPECT_FALSE(TimelineMessage::decode(ConstBytes()).ok());
}

}  // namespace
}  // namespace ringdist
