#include "cuda/stream/kernel_codec_of.h"

#include <gtest/gtest.h>

#include <string>

namespace ringdist {
namespace {

gpu::KernelCodec of(const std::string& codec) {
  return gpu::kernel_codec_of(*parse_codec(codec).value()).value();
}

TEST(CodingOf, TakesWhatTheNameSays) {
  EXPECT_EQ(of("fp16").code, gpu::Code::kHalf);
  EXPECT_EQ(of("fp8").code, gpu::Code::kFp8E4M3);
  EXPECT_EQ(of("fp8:e5m2").code, gpu::Code::kFp8E5M2);
  EXPECT_EQ(of("int8").code, gpu::Code::kInt8);
  EXPECT_FALSE(of("int8").stochastic);
  EXPECT_TRUE(of("int8:stochastic").stochastic);
  EXPECT_FALSE(of("int4").rotated);
  EXPECT_TRUE(of("int4+h").rotated);
  EXPECT_EQ(of("int4+h").code, gpu::Code::kInt4);
  EXPECT_EQ(of("topk:40").code, gpu::Code::kTopk);
  EXPECT_EQ(of("topk:40").k, 40);
  EXPECT_EQ(of("randomk:1024+h").k, 1024);
  EXPECT_TRUE(of("randomk:1024+h").rotated);
}

TEST(CodingOf, TakesWhatExactOnesStoreFromTheOp) {
  const auto lossless =
      gpu::kernel_codec_of(*parse_codec("lossless").value(), DType::kFloat16).value();
  EXPECT_EQ(lossless.code, gpu::Code::kLossless);
  EXPECT_EQ(lossless.dtype, DType::kFloat16);
}

TEST(CodingOf, KnowsWhatNeedsNoKernels) {
  EXPECT_FALSE(gpu::kernel_codec_of(*parse_codec("none").value()).has_value());
}

}  // namespace
}  // namespace ringdist
