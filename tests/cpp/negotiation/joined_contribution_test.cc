// A joined contribution, reduced with any value, must leave that value unchanged.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "kernel/reduce.h"
#include "negotiation/call_content.h"

namespace ringdist {
namespace {

constexpr int64_t kCount = 50;

// Returns arbitrary bits. For sums and products it returns ones, because these ops change -0 and
// NaNs.
std::vector<std::byte> value_of(DType dtype, ReduceOp op) {
  if (op == ReduceOp::kMin || op == ReduceOp::kMax) {
    std::mt19937 random(1);
    std::vector<std::byte> out(kCount * dtype_size(dtype));
    for (std::byte& byte : out) byte = static_cast<std::byte>(random());
    return out;
  }
  CallContent ones;
  ones.tensors = {{dtype, {kCount}}};
  ones.reduce_op = ReduceOp::kProduct;
  auto made = joined_contribution(ones.describe());
  const Bytes bytes = made.value()[0].output.contiguous(0, kCount);
  return {bytes.begin(), bytes.end()};
}

class JoinedContribution : public testing::TestWithParam<std::tuple<int, ReduceOp>> {};

TEST_P(JoinedContribution, LeavesTheOthersResult) {
  const auto dtype = static_cast<DType>(std::get<0>(GetParam()));
  const ReduceOp op = std::get<1>(GetParam());
  if (!is_reducible(dtype, op)) return;
  CallContent content;
  content.tensors = {{dtype, {kCount}}};
  content.reduce_op = op;
  auto made = joined_contribution(content.describe());
  ASSERT_TRUE(made.ok()) << made.error().what();
  const Bytes neutral = made.value()[0].output.contiguous(0, kCount);
  ASSERT_EQ(neutral.size(), kCount * dtype_size(dtype));
  const std::vector<std::byte> value = value_of(dtype, op);
  std::vector<std::byte> alone(value.size()), together(value.size());
  const ReduceOp how = op == ReduceOp::kAvg ? ReduceOp::kSum : op;
  const bool twice = op == ReduceOp::kMin || op == ReduceOp::kMax;  // makes NaNs equal
  const std::array with_itself{value.data(), value.data()};
  reduce(dtype, how, alone.data(), std::span(with_itself).first(twice ? 2 : 1), kCount, 1);
  const std::array with_neutral{value.data(), const_cast<const std::byte*>(neutral.data())};
  reduce(dtype, how, together.data(), with_neutral, kCount, 1);
  EXPECT_EQ(alone, together) << dtype_name(dtype) << " " << reduce_op_name(op);
}

INSTANTIATE_TEST_SUITE_P(All, JoinedContribution,
                         testing::Combine(testing::Range(0, 19),
                                          testing::Values(ReduceOp::kSum, ReduceOp::kAvg,
                                                          ReduceOp::kMin, ReduceOp::kMax,
                                                          ReduceOp::kProduct)));

TEST(StandInFor, ABarrierIsNothing) {
  CallContent content;
  content.kind = Collective::kBarrier;
  const auto made = joined_contribution(content.describe());
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(made.value().empty());
}

TEST(StandInFor, SeveralTensorsIsOneOpForEachDtype) {
  CallContent content;
  content.reduce_op = ReduceOp::kSum;
  content.tensors = {{DType::kInt8, {2}}, {DType::kFloat32, {3, 2}}, {DType::kInt8, {}}};
  const auto made = joined_contribution(content.describe());
  ASSERT_TRUE(made.ok());
  ASSERT_EQ(made.value().size(), 2u);
  EXPECT_EQ(made.value()[0].count, 3);
  EXPECT_EQ(made.value()[1].count, 6);
}

// Each tensor of the other ranks is a separate NCCL call, so the contribution needs as many
// pieces.
TEST(StandInFor, IsOfAsManyPiecesAsTheOthersTensors) {
  CallContent content;
  content.reduce_op = ReduceOp::kMax;
  content.tensors = {{DType::kInt8, {2}}, {DType::kInt8, {0}}, {DType::kInt8, {3, 2}}};
  content.where = "cuda";
  std::vector<std::byte> memory;
  const auto fill = [&](int64_t count, size_t width,
                        const ElementBytes& value) -> Result<FilledMemory> {
    EXPECT_EQ(width, 1u);
    memory.assign(static_cast<size_t>(count), value[0]);
    return FilledMemory{memory.data(), nullptr, DeviceStream{3, &memory}};
  };
  const auto made = joined_contribution(content.describe(), fill);
  ASSERT_TRUE(made.ok()) << made.error().what();
  ASSERT_EQ(made.value().size(), 1u);
  const OpRequest& request = made.value()[0];
  ASSERT_TRUE(request.device_stream);
  EXPECT_EQ(request.device_stream->device, 3);
  std::vector<size_t> pieces;
  request.output.for_each(0, request.count, [&](Bytes piece) { pieces.push_back(piece.size()); });
  EXPECT_EQ(pieces, (std::vector<size_t>{2, 6}));
  EXPECT_EQ(memory[7], std::byte{0x80});

  const Error error = joined_contribution(content.describe()).error();
  EXPECT_EQ(error.kind(), ErrorKind::kNotSupported) << "without a device";
  EXPECT_NE(error.message().find("join() takes one"), std::string::npos) << error.message();
}

TEST(StandInFor, WhatNeedsAllRanksThereIsNone) {
  CallContent content;
  content.kind = Collective::kBroadcast;
  EXPECT_EQ(joined_contribution(content.describe()).error().kind(), ErrorKind::kNotSupported);
  CallDescription nonsense;
  EXPECT_EQ(joined_contribution(nonsense).error().kind(), ErrorKind::kProtocol);
}

}  // namespace
}  // namespace ringdist
