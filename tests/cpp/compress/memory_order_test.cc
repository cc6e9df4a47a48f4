#include <gtest/gtest.h>

#include "compress/bucket.h"

namespace ringdist {
namespace {

TEST(MemoryOrders, RowMajorStaysAsItIs) {
  const MemoryOrder order({2, 3});
  const std::vector<float> values{0, 1, 2, 3, 4, 5};
  EXPECT_EQ(order.count(), 6);
  EXPECT_EQ(order.rows(), 2);
  EXPECT_EQ(order.to_row_major(values), values);
  EXPECT_EQ(order.from_row_major(values), values);
}

TEST(MemoryOrders, ATransposedMatrixHasItsColumnsOutermost) {
  const MemoryOrder order({2, 3}, {1, 2});
  EXPECT_EQ(order.rows(), 3);
  const std::vector<float> memory{0, 3, 1, 4, 2, 5};
  const std::vector<float> row_major{0, 1, 2, 3, 4, 5};
  EXPECT_EQ(order.to_row_major(memory), row_major);
  EXPECT_EQ(order.from_row_major(row_major), memory);
}

TEST(MemoryOrders, ChannelsLastGoesThereAndBack) {
  const MemoryOrder order({2, 3, 2, 2}, {12, 1, 6, 3});
  EXPECT_EQ(order.rows(), 2);
  std::vector<float> values(24);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const auto memory = order.from_row_major(values);
  EXPECT_EQ(memory[1], 4);  // the next channel of the same pixel
  EXPECT_EQ(order.to_row_major(memory), values);
}

TEST(MemoryOrders, SizesOfOneAndNoElements) {
  EXPECT_EQ(MemoryOrder({1, 5}).rows(), 5);
  EXPECT_EQ(MemoryOrder(std::vector<int64_t>{}).rows(), 1);
  EXPECT_EQ(MemoryOrder(std::vector<int64_t>{}).count(), 1);
  EXPECT_EQ(MemoryOrder({0, 4}).count(), 0);
  EXPECT_TRUE(MemoryOrder({0, 4}).to_row_major({}).empty());
}

}  // namespace
}  // namespace ringdist
