// Many calls of a codec's kernels in one batch, as for the parameters of a bucket. Bytes,
// residuals and values must equal those that the CPU codec gives for each call alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "cuda/stream/kernel_codec_of.h"
#include "support/block_values.h"
#include "support/floats.h"
#include "support/host_kernels.h"

namespace ringdist {
namespace {

constexpr size_t kCalls = 130;  // more than one launch holds

std::vector<std::string> with_kernels() {
  std::vector<std::string> out;
  for (const CodecRow& row : codecs())
    for (const std::string_view example : row.examples)
      for (const char* rotation : {"", "+h"}) {
        const auto codec = parse_codec(std::string(example) + rotation);
        if (codec.ok() && gpu::kernel_codec_of(*codec.value()))
          out.push_back(std::string(example) + rotation);
      }
  return out;
}

// A parameter of a bucket. Parameters are adjacent, at any alignment.
struct Parameter {
  size_t at;
  size_t count;
  bool feedback;
  CodecSeed seed;
  size_t bytes_at;
  size_t bytes;
};

class CudaBatch : public testing::TestWithParam<std::string> {
 protected:
  CudaBatch() {
    for (size_t i = 0; i < kCalls; ++i) {
      const size_t count = i % 10 == 9 ? 0 : 1 + random_() % (i % 5 == 0 ? 5000 : 400);
      const size_t bytes = codec_->max_bytes(static_cast<int64_t>(count), DType::kFloat32);
      parameters_.push_back(
          {count_, count, random_() % 2 == 0, {random_(), random_()}, bytes_, bytes});
      count_ += count;
      bytes_ += i % 2 == 0 ? bytes : (bytes + 15) / 16 * 16;
    }
    const auto block = static_cast<size_t>(codec_->block());
    in_ = block_values(count_, std::max<size_t>(block, 64), random_);
    residual_ = block_values(count_, std::max<size_t>(block, 64), random_);
  }

  static gpu::Seed seed_of(const Parameter& one) { return {one.seed.shared, one.seed.own}; }
  gpu::KernelCodec coding() const { return *gpu::kernel_codec_of(*codec_); }

  const CodecPtr codec_ = parse_codec(GetParam()).value();
  const uint32_t seed_ = std::random_device()();
  std::mt19937 random_{seed_};
  testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
  std::vector<Parameter> parameters_;
  size_t count_ = 0, bytes_ = 0;
  Floats in_, residual_;
};

TEST_P(CudaBatch, GivesEachCallWhatItGetsAlone) {
  std::vector<uint8_t> expected(bytes_), bytes(bytes_);
  Floats lost(count_, 7.0f), lost_there(count_, 7.0f);
  std::vector<gpu::EncodeCall> encodes;
  for (const Parameter& one : parameters_) {
    const ResidualSpan residual =
        one.feedback ? ResidualSpan(residual_.data() + one.at, lost.data() + one.at, one.count)
                     : ResidualSpan();
    if (one.count > 0)
      codec_->encode(std::span(in_).subspan(one.at, one.count), DType::kFloat32, residual, one.seed,
                     std::as_writable_bytes(std::span(expected).subspan(one.bytes_at, one.bytes)));
    const gpu::ResidualPointers old_residual =
        one.feedback ? gpu::ResidualPointers{residual_.data() + one.at, lost_there.data() + one.at}
                     : gpu::ResidualPointers{};
    encodes.push_back({in_.data() + one.at, old_residual, static_cast<int64_t>(one.count),
                       seed_of(one), bytes.data() + one.bytes_at});
  }
  host_kernels::encode(coding(), encodes);
  EXPECT_EQ(bytes, expected);
  EXPECT_TRUE(same_but_for_nans(lost_there, lost));

  for (const bool accumulate : {false, true}) {
    Floats here = in_, there = in_;
    int malformed = 0;
    std::vector<gpu::DecodeCall> decodes;
    for (const Parameter& one : parameters_) {
      if (one.count > 0) {
        const bool good =
            codec_
                ->decode(std::as_bytes(std::span(expected).subspan(one.bytes_at, one.bytes)),
                         DType::kFloat32, one.seed, accumulate,
                         std::span(here).subspan(one.at, one.count))
                .ok();
        ASSERT_TRUE(good);
      }
      decodes.push_back({bytes.data() + one.bytes_at, seed_of(one), accumulate,
                         there.data() + one.at, static_cast<int64_t>(one.count), &malformed});
    }
    host_kernels::decode(coding(), decodes);
    EXPECT_EQ(malformed, 0);
    EXPECT_TRUE(same_but_for_nans(there, here)) << (accumulate ? "added" : "set");
  }
}

std::string batch_name(const testing::TestParamInfo<std::string>& info) {
  std::string out = info.param;
  std::ranges::replace_if(out, [](char letter) { return letter == ':' || letter == '+'; }, '_');
  return out;
}

INSTANTIATE_TEST_SUITE_P(Codecs, CudaBatch, testing::ValuesIn(with_kernels()), batch_name);

}  // namespace
}  // namespace ringdist
