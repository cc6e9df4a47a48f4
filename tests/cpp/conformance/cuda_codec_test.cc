// The bodies of the device's kernels, run by a warp on the host, against the codecs of the CPU: for
// every codec that has a kernel, every tail length and all kinds of blocks, the same bytes, the
// same residuals, the same values. A codec that has none is named in a list, which grows shorter.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "cuda/kernel/quantize_body.h"
#include "cuda/kernel/round16_body.h"
#include "cuda/kernel/sign_body.h"
#include "support/block_values.h"
#include "support/floats.h"
#include "support/host_warp.h"

namespace ringdist {
namespace {

using Coded = std::vector<uint8_t>;

// A codec's two kernels as calls on memory of the host. `key`: of stochastic rounding.
struct Kernels {
  std::function<void(const Floats& in, gpu::Owed, uint64_t key, Coded& out)> encode;
  // False for bytes that no encoder writes.
  std::function<bool(const Coded& in, bool accumulate, Floats& out)> decode;
};

template <typename Format>
Kernels quantizing(bool stochastic = false) {
  return {[=](const Floats& in, gpu::Owed owed, uint64_t key, Coded& out) {
            const auto count = static_cast<int64_t>(in.size());
            for_each_block(
                gpu::blocks(count, gpu::kBlockCount),
                gpu::Quantizing<Format>{in.data(), owed, count, {stochastic, key}, out.data()});
          },
          [](const Coded& in, bool accumulate, Floats& out) {
            const auto count = static_cast<int64_t>(out.size());
            for_each_block(gpu::blocks(count, gpu::kBlockCount),
                           gpu::Dequantizing<Format>{in.data(), accumulate, out.data(), count});
            return true;
          }};
}

template <typename Type>
Kernels rounding() {
  return {[](const Floats& in, gpu::Owed owed, uint64_t key, Coded& out) {
            const auto count = static_cast<int64_t>(in.size());
            for_each_block(gpu::blocks(count, gpu::kRoundBlock),
                           gpu::Rounding<Type>{in.data(), owed, count, key,
                                               reinterpret_cast<uint16_t*>(out.data())});
          },
          [](const Coded& in, bool accumulate, Floats& out) {
            const auto count = static_cast<int64_t>(out.size());
            for_each_block(gpu::blocks(count, gpu::kRoundBlock),
                           gpu::Widening<Type>{reinterpret_cast<const uint16_t*>(in.data()),
                                               accumulate, out.data(), count});
            return true;
          }};
}

Kernels signs() {
  return {[](const Floats& in, gpu::Owed owed, uint64_t, Coded& out) {
            const auto count = static_cast<int64_t>(in.size());
            for_each_block(gpu::blocks(count, gpu::kSignCount),
                           gpu::TakingSigns{in.data(), owed, count, out.data()});
          },
          [](const Coded& in, bool accumulate, Floats& out) {
            const auto count = static_cast<int64_t>(out.size());
            int malformed = 0;
            for_each_block(gpu::blocks(count, gpu::kSignCount),
                           gpu::ReadingSigns{in.data(), accumulate, out.data(), count, &malformed});
            return malformed == 0;
          }};
}

const std::map<std::string, Kernels>& kernels() {
  static const std::map<std::string, Kernels> kAll{
      {"fp16", rounding<rounding16::Half>()},
      {"bf16", rounding<rounding16::BFloat>()},
      {"bf16:stochastic", rounding<rounding16::StochasticBFloat>()},
      {"fp8", quantizing<gpu::Fp8<E4M3>>()},
      {"fp8:e5m2", quantizing<gpu::Fp8<E5M2>>()},
      {"int8", quantizing<gpu::Int8>()},
      {"int8:stochastic", quantizing<gpu::Int8>(true)},
      {"int4", quantizing<gpu::Signed<4>>()},
      {"int2", quantizing<gpu::Signed<2>>()},
      {"onebit", signs()}};
  return kAll;
}

// Rows of the registry without a kernel. Remove a name when its kernel comes.
constexpr std::array<std::string_view, 4> kWithout{"none", "topk", "randomk", "lossless"};

TEST(CudaCodecs, EachRowHasKernelsOrIsNamed) {
  for (const CodecRow& row : codecs())
    for (const std::string_view example : row.examples) {
      const bool without = std::ranges::find(kWithout, row.name) != kWithout.end();
      EXPECT_NE(kernels().contains(std::string(example)), without) << example;
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

  void expect_alike(size_t count) {
    const Floats in = values(count), owed = values(count);
    const CodingSeed coding{random(), random()};
    for (const bool feedback : {false, true}) {
      SCOPED_TRACE(std::to_string(count) + " elements" + (feedback ? ", residual" : ""));
      Coded expected = memory(count), found = memory(count);
      Floats owed_here(count, 7.0f), owed_there(count, 7.0f);
      const ResidualSpan residual =
          feedback ? ResidualSpan(owed.data(), owed_here.data(), count) : ResidualSpan();
      codec->encode(in, DType::kFloat32, residual, coding,
                    std::as_writable_bytes(std::span(expected)));
      const gpu::Owed device = feedback ? gpu::Owed{owed.data(), owed_there.data()} : gpu::Owed{};
      kernel.encode(in, device, random_at(coding.shared, coding.own), found);
      ASSERT_EQ(found, expected);
      ASSERT_TRUE(same_but_for_nans(owed_there, owed_here));
      for (const bool accumulate : {false, true}) expect_decoded_alike(expected, in, accumulate);
    }
  }

  void expect_decoded_alike(const Coded& bytes, const Floats& onto, bool accumulate) const {
    Floats here = onto, there = onto;
    const bool good =
        codec->decode(std::as_bytes(std::span(bytes)), DType::kFloat32, {}, accumulate, here).ok();
    ASSERT_EQ(kernel.decode(bytes, accumulate, there), good);
    if (good) {
      ASSERT_TRUE(same_but_for_nans(there, here));
    }
  }
};

TEST_P(CudaCodec, GivesTheSameForEveryTail) {
  for (size_t count = 1; count <= 2 * block() + 40; ++count) expect_alike(count);
}

TEST_P(CudaCodec, GivesTheSameForManyKindsOfBlocks) {
  for (int round = 0; round < 20; ++round) expect_alike(20 * block() + 100 + random() % 1000);
}

TEST_P(CudaCodec, DecodesAnyBytesAlike) {
  for (int round = 0; round < 200; ++round) {
    const size_t count = 1 + random() % 1000;
    Coded bytes = memory(count);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    expect_decoded_alike(bytes, values(count), round % 2 == 0);
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
  return out;
}

INSTANTIATE_TEST_SUITE_P(Codecs, CudaCodec, testing::ValuesIn(names()), as_identifier);

}  // namespace
}  // namespace ringdist
