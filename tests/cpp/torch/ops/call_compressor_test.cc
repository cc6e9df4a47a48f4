#include "torch/ops/call_compressor.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "codec/codec.h"
#include "torch/base/errors.h"
#include "torch/ops/data_movement.h"
#include "torch/ops/reduce.h"

namespace ringdist {
namespace {

CodecPair coarse() { return value_of(parse_compression("codec", "int4", 2)); }

bool compressed_by_option(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  Call call = allreduce_call({tensor}, options);
  CallCompressor(2, coarse()).apply_option(call);
  return call.request.codec_map != nullptr;
}

TEST(CallCompressor, TheOptionTakesLargeFloatSumsAlone) {
  using c10d::ReduceOp;
  EXPECT_TRUE(compressed_by_option(at::ones({kMinCompressed}), ReduceOp::SUM));
  EXPECT_TRUE(compressed_by_option(at::ones({kMinCompressed}), ReduceOp::AVG));
  EXPECT_FALSE(compressed_by_option(at::ones({kMinCompressed - 1}), ReduceOp::SUM));
  EXPECT_FALSE(compressed_by_option(at::ones({kMinCompressed}), ReduceOp::MAX));
  EXPECT_FALSE(compressed_by_option(at::ones({kMinCompressed}, at::kLong), ReduceOp::SUM));
  EXPECT_FALSE(compressed_by_option(at::ones({kMinCompressed}, at::kDouble), ReduceOp::SUM));
}

TEST(CallCompressor, OfAReduceScatterEachRanksPartHasBlocksOfItsOwn) {
  const Tensors inputs{at::ones({2000}), at::ones({400})};
  const Tensors outputs{at::ones({1000}), at::ones({200})};
  auto calls = reduce_scatter_tensor_calls({0, 2}, outputs, inputs, {});
  ASSERT_EQ(calls.size(), 1U);
  CallCompressor(2, coarse()).apply_option(calls[0]);
  ASSERT_TRUE(calls[0].request.codec_map);
  std::vector<int64_t> offsets;
  for (const CodecMapPart& part : calls[0].request.codec_map->parts) offsets.push_back(part.offset);
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, 1000, 1200, 2200}));
}

TEST(CallCompressor, TheNewResidualIsStoredWhenTheCallHasSucceeded) {
  const CallCompressor coder(2, {});
  const at::Tensor tensor = at::ones({10});
  const at::Tensor residual = at::zeros({10});
  Call call = allreduce_call({tensor}, {});
  coder.apply(call, tensor, {coarse(), residual}, {tensor});
  ASSERT_TRUE(call.request.codec_map);
  const CodecMapPart& part = call.request.codec_map->parts.front();
  EXPECT_EQ(part.residual, residual.data_ptr<float>());
  EXPECT_NE(part.next, part.residual);
  part.next[3] = 0.5F;
  EXPECT_EQ(residual[3].item<float>(), 0);
  ASSERT_TRUE(call.staging.must_finish());
  call.staging.finish();
  EXPECT_EQ(residual[3].item<float>(), 0.5F);
}

TEST(CallCompressor, AloneThereIsNoResidual) {
  const CallCompressor coder(1, {});
  const at::Tensor tensor = at::ones({10});
  Call call = allreduce_call({tensor}, {});
  coder.apply(call, tensor, {coarse(), at::zeros({10})}, {tensor});
  EXPECT_FALSE(call.staging.must_finish());
}

TEST(CallCompressor, NamesTheArgumentOfItsOperation) {
  const at::Tensor longs = at::ones({4}, at::kLong);
  Call call = allgather_into_tensor_call({0, 2}, at::ones({8}, at::kLong), longs, {});
  try {
    CallCompressor(2, {}).apply(call, longs, {coarse(), {}}, {});
    ADD_FAILURE() << "accepted";
  } catch (const c10::TypeError& error) {
    EXPECT_EQ(std::string(error.what_without_backtrace()),
              "ringdist: all_gather_into_tensor: codec 'int4' takes float32, bfloat16 or float16; "
              "input is int64[4]");
  }
}

}  // namespace
}  // namespace ringdist
