// Bodies of the codec kernels, run by a warp on the host: examples of the specs, residuals in
// place, invalid bytes. tests/cpp/conformance/cuda_codec_test.cc compares them with the CPU
// codecs.
#include "cuda/kernel/codec_bodies.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "cuda/kernel/quantized_coder.h"
#include "cuda/kernel/sign_coder.h"
#include "support/block_values.h"
#include "support/host_coding.h"

namespace ringdist {
namespace {

using Int4 = gpu::QuantizedCoder<gpu::Signed<4>>;
using Fp8 = gpu::QuantizedCoder<gpu::Fp8<E4M3>>;

TEST(DeviceCoding, GivesTheBytesOfTheSpecs) {
  EXPECT_EQ(encode_on_host(Int4(), {4, -3, 1, 0.2f, 0}), (Coded{0x00, 0xbf, 0x80, 0x8e, 0x86}));
  EXPECT_EQ(encode_on_host(Int4(), {5 * 0x1p-149f, -2 * 0x1p-149f, 0}),
            (Coded{0x01, 0x00, 0x8d, 0x86}));
  EXPECT_EQ(encode_on_host(Fp8(), {448, -1, 3, 0.1f}), (Coded{0x80, 0x3f, 0x7e, 0xb8, 0x44, 0x1d}));
  EXPECT_EQ(encode_on_host(gpu::SignCoder(), {1, -2, 3, -6}), (Coded{0x40, 0x40, 0x0a}));
  EXPECT_EQ(encode_on_host(gpu::SignCoder(), {0, -0x1.8p-140f, 0}), (Coded{0x01, 0x89, 0x02}));
}

TEST(DeviceCoding, DecodesTheBytesOfTheSpecs) {
  Floats out(5);
  EXPECT_TRUE(decode_on_host(Int4(), {0x00, 0xbf, 0x80, 0x8e, 0x86}, false, out));
  EXPECT_TRUE(same(out, {4, -3, 1, -0.0f, -0.0f}));
  out = {1, 1, 1, 1};
  EXPECT_TRUE(decode_on_host(gpu::SignCoder(), {0x40, 0x40, 0x0a}, true, out));
  EXPECT_EQ(out, (Floats{4, -2, 4, -2}));
  out = {-0.0f, 6, 7};
  EXPECT_TRUE(decode_on_host(gpu::SignCoder(), {0x01, 0x89, 0x02}, true, out));
  EXPECT_TRUE(same(out, {-0.0f, 6, 7}));
}

TEST(DeviceCoding, TellsOfAnElementThatIsNotThere) {
  Floats out{5, 6, 7};
  EXPECT_FALSE(decode_on_host(gpu::SignCoder(), {0x03, 0x89, 0x02}, false, out));
  EXPECT_EQ(out, (Floats{5, 6, 7}));
}

TEST(DeviceCoding, MayLeaveTheResidualInPlace) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const Floats in = block_values(300, Int4::kCount, random);
  Floats residual = block_values(300, Int4::kCount, random), apart(300);
  const Coded bytes = encode_on_host(Int4(), in, {residual.data(), apart.data()});
  EXPECT_EQ(encode_on_host(Int4(), in, {residual.data(), residual.data()}), bytes);
  EXPECT_TRUE(same_but_for_nans(residual, apart));
}

}  // namespace
}  // namespace ringdist
