// Bodies of the device kernels, run by a warp on the host, compared with the CPU codecs. For every
// codec, every tail length and all kinds of blocks they must give the same bytes, residuals and
// values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "cuda/kernel/lossless.h"
#include "cuda/kernel/quantized_coder.h"
#include "cuda/kernel/round16_coder.h"
#include "cuda/kernel/sign_coder.h"
#include "cuda/kernel/sparse_coder.h"
#include "cuda/stream/kernel_codec_of.h"
#include "support/block_values.h"
#include "support/floats.h"
#include "support/host_coding.h"
#include "support/host_launcher.h"

namespace ringdist {
namespace {

// A codec's two kernels, as calls on host memory.
struct Kernels {
  std::function<Coded(const Floats& in, gpu::ResidualPointers, gpu::Seed)> encode;
  // Returns false for bytes that no encoder produces.
  std::function<bool(const Coded& in, bool accumulate, Floats& out, gpu::Seed)> decode;
};

template <bool kRotated, typename Coder>
Kernels kernels_of(Coder coder) {
  return {[=](const Floats& in, gpu::ResidualPointers old_residual, gpu::Seed seed) {
            return encode_on_host<Coder, kRotated>(coder, in, old_residual, seed);
          },
          [=](const Coded& in, bool accumulate, Floats& out, gpu::Seed seed) {
            return decode_on_host<Coder, kRotated>(coder, in, accumulate, out, seed);
          }};
}

Kernels lossless_kernels() {
  return {[](const Floats& in, gpu::ResidualPointers old_residual, gpu::Seed seed) {
            const auto count = static_cast<int64_t>(in.size());
            Coded out(static_cast<size_t>(gpu::lossless_head(count)) + in.size() * sizeof(float));
            HostLauncher launcher;
            gpu::launch_lossless(launcher, DType::kFloat32,
                                 gpu::EncodeCall{in.data(), old_residual, count, seed, out.data()});
            return out;
          },
          [](const Coded& in, bool accumulate, Floats& out, gpu::Seed seed) {
            int malformed = 0;
            HostLauncher launcher;
            gpu::launch_lossless(launcher, DType::kFloat32,
                                 gpu::DecodeCall{in.data(), seed, accumulate, out.data(),
                                                 static_cast<int64_t>(out.size()), &malformed});
            return malformed == 0;
          }};
}

using AllKernels = std::map<std::string, Kernels>;

template <typename Coder>
void add(AllKernels& all, const std::string& name, Coder coder) {
  all[name] = kernels_of<false>(coder);
  all[name + "+h"] = kernels_of<true>(coder);
}

const AllKernels& kernels() {
  static const AllKernels kAll = [] {
    AllKernels all;
    add(all, "fp16", gpu::Round16Coder<rounding16::Half>());
    add(all, "bf16", gpu::Round16Coder<rounding16::BFloat>());
    add(all, "bf16:stochastic", gpu::Round16Coder<rounding16::StochasticBFloat>());
    add(all, "fp8", gpu::QuantizedCoder<gpu::Fp8<E4M3>>());
    add(all, "fp8:e5m2", gpu::QuantizedCoder<gpu::Fp8<E5M2>>());
    add(all, "int8", gpu::QuantizedCoder<gpu::Int8>());
    add(all, "int8:stochastic", gpu::QuantizedCoder<gpu::Int8>{.stochastic = true});
    add(all, "int4", gpu::QuantizedCoder<gpu::Signed<4>>());
    add(all, "int2", gpu::QuantizedCoder<gpu::Signed<2>>());
    add(all, "onebit", gpu::SignCoder());
    for (const int k : {1, 10, 40, 256, 1024})
      add(all, "topk:" + std::to_string(k), gpu::TopkCoder{{k}});
    for (const int k : {1, 10, 256, 1024})
      add(all, "randomk:" + std::to_string(k), gpu::RandomkCoder{{k}});
    all["lossless"] = lossless_kernels();
    return all;
  }();
  return kAll;
}

TEST(CudaCodecs, EachRowButNoneHasKernels) {
  for (const CodecRow& row : codecs())
    for (const std::string_view example : row.examples) {
      EXPECT_NE(kernels().contains(std::string(example)), row.name == "none") << example;
      EXPECT_NE(gpu::kernel_codec_of(*parse_codec(example).value()).has_value(), row.name == "none")
          << example;
    }
}

class CudaCodec : public testing::TestWithParam<std::string> {
 protected:
  const CodecPtr codec = parse_codec(GetParam()).value();
  const Kernels& kernel = kernels().at(GetParam());
  const uint32_t seed = std::random_device()();
  std::mt19937 random{seed};
  testing::ScopedTrace trace{__FILE__, __LINE__, "seed " + std::to_string(seed)};

  size_t block() const { return static_cast<size_t>(codec->block()); }
  Coded memory(size_t count) const {
    return Coded(codec->max_bytes(static_cast<int64_t>(count), DType::kFloat32));
  }
  Floats values(size_t count) { return block_values(count, block() == 1 ? 64 : block(), random); }

  void expect_alike(size_t count) { expect_alike(values(count), values(count)); }

  void expect_alike(const Floats& in, const Floats& old_residual) {
    const size_t count = in.size();
    const CodecSeed coding{random(), random()};
    for (const bool feedback : {false, true}) {
      SCOPED_TRACE(std::to_string(count) + " elements" + (feedback ? ", residual" : ""));
      Coded expected = memory(count);
      Floats residual_here(count, 7.0f), residual_there(count, 7.0f);
      const ResidualSpan residual =
          feedback ? ResidualSpan(old_residual.data(), residual_here.data(), count)
                   : ResidualSpan();
      codec->encode(in, DType::kFloat32, residual, coding,
                    std::as_writable_bytes(std::span(expected)));
      const gpu::ResidualPointers device =
          feedback ? gpu::ResidualPointers{old_residual.data(), residual_there.data()}
                   : gpu::ResidualPointers{};
      ASSERT_EQ(kernel.encode(in, device, {coding.shared, coding.own}), expected);
      ASSERT_TRUE(same_but_for_nans(residual_there, residual_here));
      for (const bool accumulate : {false, true})
        expect_decoded_alike(expected, in, accumulate, coding);
    }
  }

  void expect_decoded_alike(const Coded& bytes, const Floats& onto, bool accumulate,
                            CodecSeed coding) const {
    Floats here = onto, there = onto;
    const bool good =
        codec->decode(std::as_bytes(std::span(bytes)), DType::kFloat32, coding, accumulate, here)
            .ok();
    ASSERT_EQ(kernel.decode(bytes, accumulate, there, {coding.shared, coding.own}), good);
    if (good) {
      ASSERT_TRUE(same_but_for_nans(there, here));
    }
  }
};

TEST_P(CudaCodec, GivesTheSameForEveryTail) {
  // For large blocks only some lengths are tested, among them the first and last of a part of 32.
  const size_t step = block() > 256 ? 93 : 1;
  for (size_t count = 1; count <= 2 * block() + 40; count += step) expect_alike(count);
}

TEST_P(CudaCodec, GivesTheSameForManyKindsOfBlocks) {
  const int rounds = block() > 256 ? 4 : 20;
  for (int round = 0; round < rounds; ++round) expect_alike(5000 + random() % 1000);
}

// Enough ordinary blocks for a whole warp, followed by one that is not.
TEST_P(CudaCodec, GivesTheSameForOrdinaryBlocks) {
  std::normal_distribution<float> normal;
  for (int round = 0; round < 20; ++round) {
    Floats in(4096 + random() % 2000), old_residual(in.size());
    for (float& x : in) x = std::ldexp(normal(random), round);
    for (float& x : old_residual) x = normal(random);
    if (round % 2 == 1) in[2048 + random() % 1024] = std::numeric_limits<float>::infinity();
    expect_alike(in, old_residual);
    std::fill_n(in.begin() + 1024, 300, 0.0f);
    expect_alike(in, old_residual);
  }
}

TEST_P(CudaCodec, DecodesAnyBytesAlike) {
  for (int round = 0; round < 200; ++round) {
    const size_t count = 1 + random() % 1000;
    Coded bytes = memory(count);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    expect_decoded_alike(bytes, values(count), round % 2 == 0, {random(), random()});
  }
}

// Damages valid bytes, so that the error may come late and after a correct block.
TEST_P(CudaCodec, DecodesDamagedBytesAlike) {
  for (int round = 0; round < 100; ++round) {
    const size_t count = 1 + random() % (2 * block() + 1000);
    const Floats in = values(count);
    const CodecSeed coding{random(), random()};
    Coded bytes = memory(count);
    codec->encode(in, DType::kFloat32, {}, coding, std::as_writable_bytes(std::span(bytes)));
    for (size_t left = 1 + random() % 3; left > 0; --left)
      bytes[random() % bytes.size()] = round % 4 == 0 ? 0xff : static_cast<uint8_t>(random());
    expect_decoded_alike(bytes, in, round % 2 == 0, coding);
  }
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const auto& [name, kernel] : kernels()) out.push_back(name);
  return out;
}

std::string as_identifier(const testing::TestParamInfo<std::string>& info) {
  std::string out = info.param;
  std::ranges::replace(out, ':', '_');
  std::ranges::replace(out, '+', '_');
  return out;
}

INSTANTIATE_TEST_SUITE_P(Codecs, CudaCodec, testing::ValuesIn(names()), as_identifier);

}  // namespace
}  // namespace ringdist
