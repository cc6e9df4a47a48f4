#include "base/buffers.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace ringdist {
namespace {

// A buffer with elements 0..9 in three spans of 4, 1 and 5.
class BufferOfThree : public testing::Test {
 protected:
  BufferOfThree() : buffer_(sizeof(int32_t)) {
    std::iota(a_.begin(), a_.end(), 0);
    std::iota(b_.begin(), b_.end(), 4);
    std::iota(c_.begin(), c_.end(), 5);
    buffer_.append(a_.data(), 4);
    buffer_.append(nullptr, 0);
    buffer_.append(b_.data(), 1);
    buffer_.append(c_.data(), 5);
  }

  std::vector<int32_t> a_ = std::vector<int32_t>(4);
  std::vector<int32_t> b_ = std::vector<int32_t>(1);
  std::vector<int32_t> c_ = std::vector<int32_t>(5);
  Buffer buffer_;
};

TEST_F(BufferOfThree, IsOneIndexSpace) {
  EXPECT_EQ(buffer_.count(), 10);
  std::vector<int32_t> out(10);
  for (int64_t offset = 0; offset <= 10; ++offset) {
    for (int64_t count = 0; offset + count <= 10; ++count) {
      buffer_.copy_to(offset, count, reinterpret_cast<std::byte*>(out.data()));
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(out[i], offset + i);
    }
  }
}

TEST_F(BufferOfThree, CopiesIntoItsSpans) {
  const std::vector<int32_t> in{90, 91, 92};
  buffer_.copy_from(3, 3, reinterpret_cast<const std::byte*>(in.data()));
  EXPECT_EQ(a_, (std::vector<int32_t>{0, 1, 2, 90}));
  EXPECT_EQ(b_, (std::vector<int32_t>{91}));
  EXPECT_EQ(c_, (std::vector<int32_t>{92, 6, 7, 8, 9}));
}

TEST_F(BufferOfThree, ShowsWhatLiesInOneSpan) {
  const auto at = [](int32_t& x) { return reinterpret_cast<std::byte*>(&x); };
  EXPECT_EQ(buffer_.contiguous(1, 3).data(), at(a_[1]));
  EXPECT_EQ(buffer_.contiguous(1, 3).size(), 12u);
  EXPECT_EQ(buffer_.contiguous(4, 1).data(), at(b_[0]));
  EXPECT_EQ(buffer_.contiguous(5, 5).data(), at(c_[0]));
  EXPECT_EQ(buffer_.contiguous(3, 2).data(), nullptr);
  EXPECT_EQ(buffer_.contiguous(4, 0).data(), nullptr);
}

TEST_F(BufferOfThree, VisitsPiecesInOrder) {
  std::vector<size_t> sizes;
  buffer_.for_each(2, 7, [&](Bytes piece) { sizes.push_back(piece.size() / sizeof(int32_t)); });
  EXPECT_EQ(sizes, (std::vector<size_t>{2, 1, 4}));
}

TEST_F(BufferOfThree, RangesOutsideAreBugs) {
  const auto ignore = [](Bytes) {};
  EXPECT_DEATH(buffer_.for_each(9, 2, ignore), "outside its buffer");
  EXPECT_DEATH((void)buffer_.contiguous(-1, 1), "outside its buffer");
  EXPECT_DEATH((void)buffer_.contiguous(10, 1), "outside its buffer");
}

TEST(Buffer, MayBeEmpty) {
  Buffer buffer(4);
  EXPECT_EQ(buffer.count(), 0);
  buffer.for_each(0, 0, [](Bytes) { FAIL(); });
}

TEST(Range, Overlap) {
  const Range a{BufferId::kOutput, 10, 5};
  EXPECT_TRUE(overlaps(a, a));
  EXPECT_TRUE(overlaps(a, {BufferId::kOutput, 14, 1}));
  EXPECT_TRUE(overlaps({BufferId::kOutput, 0, 11}, a));
  EXPECT_FALSE(overlaps(a, {BufferId::kOutput, 15, 1}));
  EXPECT_FALSE(overlaps({BufferId::kOutput, 5, 5}, a));
  EXPECT_FALSE(overlaps(a, {BufferId::kInput, 10, 5}));
  EXPECT_FALSE(overlaps({BufferId::kOutput, 10, 0}, {BufferId::kOutput, 10, 0}));
}

}  // namespace
}  // namespace ringdist
