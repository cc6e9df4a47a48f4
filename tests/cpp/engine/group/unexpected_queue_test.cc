#include "engine/group/unexpected_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

namespace ringdist {
namespace {

TEST(UnexpectedQueue, KeepsCopiesInOrderByPlace) {
  UnexpectedQueue<int> parking(std::make_shared<ScratchPool>());
  for (int i = 0; i < 3; ++i) {
    MessageHeader header{};
    header.segment = static_cast<uint32_t>(i);
    std::vector<std::byte> payload(4, static_cast<std::byte>(i));
    EXPECT_EQ(parking.push(7, header, payload), i == 0);
    std::ranges::fill(payload, std::byte{99});
  }
  EXPECT_TRUE(parking.push(8, MessageHeader{}, {}));
  EXPECT_EQ(parking.count(), 4u);
  const auto taken = parking.take(7);
  ASSERT_EQ(taken.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(taken[i].header.segment, i);
    EXPECT_EQ(taken[i].payload().bytes()[3], static_cast<std::byte>(i));
  }
  EXPECT_TRUE(parking.take(7).empty());
  EXPECT_EQ(parking.count(), 1u);
  EXPECT_TRUE(parking.take(8)[0].payload().bytes().empty());
  parking.clear();
  EXPECT_EQ(parking.count(), 0u);
}

TEST(UnexpectedQueue, KeepsOfWhatWasTakenBackItsHeader) {
  UnexpectedQueue<int> parking(std::make_shared<ScratchPool>());
  const std::vector<std::byte> payload(4);
  std::atomic<uint32_t> word = 2;
  MessageHeader header{};
  header.segment = 3;
  EXPECT_TRUE(parking.push(7, header, Payload(payload, word, 2)));
  word = 0;
  EXPECT_FALSE(parking.push(7, header, Payload(payload, word, 2)));
  const auto taken = parking.take(7);
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].header.segment, 3u);
  EXPECT_FALSE(taken[0].payload().still_valid());
  EXPECT_EQ(taken[0].payload().size(), 0u);
  EXPECT_TRUE(taken[1].payload().still_valid());
  EXPECT_EQ(taken[1].payload().size(), 4u);
}

}  // namespace
}  // namespace ringdist
