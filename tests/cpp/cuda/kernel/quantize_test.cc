// The bodies of the kernels of int4 and fp8, run by a warp on the host: the specs' examples, and
// residuals in place. tests/cpp/conformance/cuda_codec_test.cc holds all formats against the
// codecs.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "cuda/kernel/quantize_body.h"
#include "support/block_values.h"
#include "support/floats.h"
#include "support/host_warp.h"

namespace ringdist {
namespace {

using Coded = std::vector<uint8_t>;
using Int4 = gpu::Signed<4>;

// As many bytes as `count` elements of whole blocks and a tail take.
template <typename Format>
Coded encoded(const Floats& in, gpu::Owed owed = {}) {
  const auto count = static_cast<int64_t>(in.size());
  const int64_t whole = count / gpu::kBlockCount;
  const auto tail = static_cast<int>(count % gpu::kBlockCount);
  Coded out(static_cast<size_t>(whole * gpu::block_bytes<Format>(gpu::kBlockCount) +
                                (tail == 0 ? 0 : gpu::block_bytes<Format>(tail))));
  for_each_block(gpu::blocks(count, gpu::kBlockCount),
                 gpu::Quantizing<Format>{in.data(), owed, count, {}, out.data()});
  return out;
}

TEST(DeviceQuantize, GivesTheBytesOfTheSpecs) {
  EXPECT_EQ(encoded<Int4>({4, -3, 1, 0.2f, 0}), (Coded{0x00, 0xbf, 0x80, 0x8e, 0x86}));
  EXPECT_EQ(encoded<Int4>({5 * 0x1p-149f, -2 * 0x1p-149f, 0}), (Coded{0x01, 0x00, 0x8d, 0x86}));
  EXPECT_EQ(encoded<gpu::Fp8<E4M3>>({448, -1, 3, 0.1f}),
            (Coded{0x80, 0x3f, 0x7e, 0xb8, 0x44, 0x1d}));
}

TEST(DeviceQuantize, DecodesTheBytesOfTheSpecs) {
  const Coded in{0x00, 0xbf, 0x80, 0x8e, 0x86};
  Floats out(5);
  for_each_block(1, gpu::Dequantizing<Int4>{in.data(), false, out.data(), 5});
  EXPECT_TRUE(same(out, {4, -3, 1, -0.0f, -0.0f}));
}

TEST(DeviceQuantize, MayLeaveTheResidualInPlace) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const Floats in = block_values(300, kQuantizeBlock, random);
  Floats owed = block_values(300, kQuantizeBlock, random), apart(300);
  const Coded bytes = encoded<Int4>(in, {owed.data(), apart.data()});
  EXPECT_EQ(encoded<Int4>(in, {owed.data(), owed.data()}), bytes);
  EXPECT_TRUE(same_but_for_nans(owed, apart));
}

}  // namespace
}  // namespace ringdist
