// Translation of c10d arguments to requests: buffers by rank, and copies only where they are
// needed.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "torch/ops/all_to_all.h"
#include "torch/ops/data_movement.h"
#include "torch/ops/reduce.h"

namespace ringdist {
namespace {

at::Tensor range(int64_t begin, int64_t end) {
  return at::arange(begin, end, at::TensorOptions(at::kFloat));
}

std::vector<float> values_of(const Buffer& buffer) {
  std::vector<float> out(static_cast<size_t>(buffer.count()));
  buffer.copy_to(0, buffer.count(), reinterpret_cast<std::byte*>(out.data()));
  return out;
}

const void* begin_of(const Buffer& buffer) { return buffer.contiguous(0, 1).data(); }

template <typename Make>
std::string refusal(const Make& make) {
  try {
    make();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "accepted";
}

TEST(Calls, ReduceScatterHasForEachRankItsPartOfAllTensors) {
  const Tensors inputs{range(0, 4), range(10, 12)};
  const Tensors outputs{at::zeros({2}), at::zeros({1})};
  const auto calls = reduce_scatter_tensor_calls({1, 2}, outputs, inputs, {});
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(values_of(calls[0].request.input), (std::vector<float>{0, 1, 10, 2, 3, 11}));
  EXPECT_EQ(calls[0].request.count, 3);
  EXPECT_FALSE(calls[0].staging.must_finish());
}

TEST(Calls, AListIsReducedAsOneCallOfOneDtype) {
  const Call call = allreduce_coalesced_call({range(0, 3), range(3, 5)}, {});
  EXPECT_EQ(values_of(call.request.output), (std::vector<float>{0, 1, 2, 3, 4}));
  EXPECT_EQ(call.type, c10d::OpType::ALLREDUCE_COALESCED);
  const Tensors mixed{range(0, 3), at::ones({2}, at::kLong), range(3, 5)};
  EXPECT_NE(refusal([&] { allreduce_coalesced_call(mixed, {}); }).find("all have the same type"),
            std::string::npos);
}

TEST(Calls, AFactorMultipliesACopy) {
  const at::Tensor tensor = range(0, 3);
  c10d::AllreduceOptions options;
  options.reduceOp.op_ = c10d::ReduceOp::PREMUL_SUM;
  options.reduceOp.supplement_ = c10::make_intrusive<c10d::NCCLPreMulSumSupplement>(2.0);
  const Call call = allreduce_call({tensor}, options);
  EXPECT_EQ(values_of(call.request.output), (std::vector<float>{0, 2, 4}));
  EXPECT_TRUE(at::equal(tensor, range(0, 3)));
  EXPECT_TRUE(call.staging.must_finish());
}

TEST(Calls, AllgatherReadsInPlaceWhatLiesAtItsRanksPart) {
  const at::Tensor output = at::zeros({6});
  const at::Tensor own = output.narrow(0, 2, 2);
  const Call in_place = allgather_into_tensor_call({1, 3}, output, own, {});
  EXPECT_EQ(begin_of(in_place.request.input), own.const_data_ptr());
  const Call elsewhere = allgather_into_tensor_call({0, 3}, output, own, {});
  EXPECT_NE(begin_of(elsewhere.request.input), own.const_data_ptr());
}

TEST(Calls, OutputsThatOverlapAreWrittenApart) {
  const at::Tensor both = at::zeros({3});
  const Tensors list{both.narrow(0, 0, 2), both.narrow(0, 1, 2)};
  const Call call = allgather_call({0, 2}, {list}, {range(0, 2)}, {});
  EXPECT_TRUE(call.staging.must_finish());
  EXPECT_NE(begin_of(call.request.output), both.const_data_ptr());
}

TEST(Calls, ABroadcastsStandInGoesBackWhereItIsReceived) {
  const at::Tensor strided = range(0, 8).view({2, 4}).t();
  EXPECT_FALSE(broadcast_call({0, 2}, {strided}, {}).staging.must_finish());
  EXPECT_TRUE(broadcast_call({1, 2}, {strided}, {}).staging.must_finish());
}

TEST(Calls, OnlyTheRootOfAGatherHasOutputs) {
  const Tensors list{at::zeros({2}), at::zeros({2})};
  EXPECT_EQ(gather_call({0, 2}, {list}, {range(0, 2)}, {}).request.output.count(), 4);
  EXPECT_EQ(gather_call({1, 2}, {}, {range(0, 2)}, {}).request.output.count(), 0);
  const auto given = [&] { gather_call({1, 2}, {list}, {range(0, 2)}, {}); };
  EXPECT_EQ(refusal(given), "ringdist: gather: requires empty output on non-root, 1 lists given");
}

TEST(Calls, SplitsAreRows) {
  const at::Tensor input = at::zeros({3, 2});
  const Call call = alltoall_call({0, 2}, at::zeros({4, 2}), input, {1, 3}, {1, 2}, {});
  EXPECT_EQ(call.request.input_parts, (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(call.request.output_parts, (std::vector<int64_t>{2, 6}));
  const auto unlike = [&] { alltoall_call({1, 2}, input, input, {1, 2}, {2, 1}, {}); };
  EXPECT_NE(refusal(unlike).find("rank 1 has 2 elements of input for itself, but 4"),
            std::string::npos);
}

TEST(Calls, ASendNamesARankOfTheGroup) {
  const Tensors one{range(0, 2)};
  const Call call = send_call({1, 3}, one, 2, 7);
  ASSERT_TRUE(call.request.envelope);
  EXPECT_EQ(call.request.envelope->peer, 2);
  EXPECT_TRUE(call.request.envelope->sends);
  EXPECT_EQ(call.request.output.count(), 0);
  for (const int peer : {-1, 3})
    EXPECT_NE(refusal([&] { send_call({1, 3}, one, peer, 7); }).find("invalid destination rank"),
              std::string::npos)
        << peer;
  EXPECT_NE(refusal([&] { recv_call({1, 3}, one, 0, -1); }).find("invalid tag: -1"),
            std::string::npos);
}

TEST(Calls, ATimeoutIsNotNegativeAndHasALimit) {
  const auto take = [](int64_t count) {
    c10d::AllreduceOptions options;
    options.timeout = Milliseconds(count);
    return allreduce_call({range(0, 2)}, options).request.timeout;
  };
  EXPECT_EQ(take(1500), Milliseconds(1500));
  EXPECT_EQ(take(INT64_MAX), kLongest);
  EXPECT_EQ(take(-5833720368547758), kLongest);  // pybind11's timedelta.max
  EXPECT_EQ(take(-1), Milliseconds(0));          // unset
  EXPECT_NE(refusal([&] { take(-2); }).find("timeout must not be negative, got -2 ms"),
            std::string::npos);
  EXPECT_GT(deadline_after(Milliseconds::max()), Clock::now());
}

TEST(Calls, SparseTensorsTakeSumAndAvg) {
  const at::Tensor tensor = at::eye(3).to_sparse();
  EXPECT_EQ(sparse_allreduce_call({tensor}, {}).timeout, Milliseconds(0));
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::MAX;
  EXPECT_NE(refusal([&] { sparse_allreduce_call({tensor}, options); }).find("operation MAX"),
            std::string::npos);
  EXPECT_NE(refusal([&] { sparse_allreduce_call({at::eye(3)}, {}); }).find("must be sparse"),
            std::string::npos);
}

}  // namespace
}  // namespace ringdist
