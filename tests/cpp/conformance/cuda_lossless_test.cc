// Kernels of `lossless`, run by a warp on the host, compared with the CPU codec. Bytes, residuals
// and values must be equal in each dtype, and both must reject the same bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "cuda/kernel/lossless.h"
#include "support/floats.h"
#include "support/host_launcher.h"

namespace ringdist {
namespace {

using Bytes8 = std::vector<uint8_t>;

struct Kind {
  const char* name;
  std::function<float(size_t, std::mt19937&)> draw;
};

float normal(std::mt19937& random) { return std::normal_distribution<float>()(random); }

// Kinds of chunks: exponents of gradients, one symbol, two symbols, noise that stays raw, codes
// that the limit of 12 bits shortens, and chunks of different kinds.
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kKinds{
      {"normal", [](size_t, auto& random) { return normal(random); }},
      {"one", [](size_t, auto&) { return 1.0f; }},
      {"two", [](size_t i, auto&) { return i % 3 == 0 ? 1.0f : -2.0f; }},
      {"noise",
       [](size_t, auto& random) { return std::bit_cast<float>(static_cast<uint32_t>(random())); }},
      {"deep",
       [](size_t, auto& random) {
         return std::ldexp(1.5f, -std::geometric_distribution<int>(0.5)(random));
       }},
      {"mixed",
       [](size_t i, auto& random) {
         const size_t chunk = i / LosslessChunk::kElements;
         if (chunk % 3 == 0) return 0.0f;
         return chunk % 3 == 1 ? normal(random)
                               : std::bit_cast<float>(static_cast<uint32_t>(random()));
       }},
  };
  return kKinds;
}

class LosslessKernels : public testing::TestWithParam<DType> {
 protected:
  const DType dtype = GetParam();
  const CodecPtr codec = parse_codec("lossless").value();
  const uint32_t seed = std::random_device()();
  std::mt19937 random{seed};
  testing::ScopedTrace trace{__FILE__, __LINE__, "seed " + std::to_string(seed)};
  size_t used = 0;  // number of used bytes of encoded()

  Floats values(const Kind& kind, size_t count) {
    Floats out(count);
    for (size_t i = 0; i < count; ++i) out[i] = kind.draw(i, random);
    return out;
  }

  Bytes8 encoded(const Floats& in, ResidualSpan residual) {
    Bytes8 out(codec->max_bytes(static_cast<int64_t>(in.size()), dtype));
    used = codec->encode(in, dtype, residual, {}, std::as_writable_bytes(std::span(out)));
    return out;
  }

  void expect_encoded_alike(const Floats& in, const Floats& old_residual) {
    for (const bool feedback : {false, true}) {
      Floats here(in.size(), 7.0f), there = feedback ? old_residual : here;
      const Bytes8 expected =
          encoded(in, feedback ? ResidualSpan(old_residual.data(), here.data(), in.size())
                               : ResidualSpan());
      Bytes8 got(expected.size());
      HostLauncher launcher;
      // The residual is updated in place, as error feedback does by default.
      const gpu::ResidualPointers device =
          feedback ? gpu::ResidualPointers{there.data(), there.data()} : gpu::ResidualPointers{};
      gpu::launch_lossless(
          launcher, dtype,
          gpu::EncodeCall{in.data(), device, static_cast<int64_t>(in.size()), {}, got.data()});
      ASSERT_EQ(got, expected) << "residual: " << feedback;
      ASSERT_TRUE(same_but_for_nans(there, here));
    }
  }

  void expect_decoded_alike(const Bytes8& bytes, const Floats& onto) {
    for (const bool accumulate : {false, true}) {
      Floats here = onto, there = onto;
      const auto result =
          codec->decode(std::as_bytes(std::span(bytes)), dtype, {}, accumulate, here);
      int malformed = 0;
      HostLauncher launcher;
      gpu::launch_lossless(launcher, dtype,
                           gpu::DecodeCall{bytes.data(),
                                           {},
                                           accumulate,
                                           there.data(),
                                           static_cast<int64_t>(onto.size()),
                                           &malformed});
      ASSERT_EQ(malformed == 0, result.ok()) << (result.ok() ? "" : result.error().message());
      if (result.ok()) {
        ASSERT_TRUE(same_but_for_nans(there, here));
      }
    }
  }
};

TEST_P(LosslessKernels, GiveTheSame) {
  for (const Kind& kind : kinds())
    for (const size_t count :
         {1, 2, 13, 31, 32, 33, 255, 256, 257, 1000, 8191, 8192, 8193, 30000}) {
      SCOPED_TRACE(std::string(kind.name) + ", " + std::to_string(count) + " elements");
      const Floats in = values(kind, count);
      expect_encoded_alike(in, values(kinds()[0], count));
      expect_decoded_alike(encoded(in, {}), values(kinds()[0], count));
    }
}

// More chunks than a warp adds up at once, with eight sizes per lane.
TEST_P(LosslessKernels, FindChunksBehindMany) {
  constexpr size_t kChunks = 8 * kWarp + 3;
  Floats in(kChunks * LosslessChunk::kElements + 100, 1.0f);
  for (size_t i = 0; i < in.size(); i += 5000) in[i] = normal(random);
  expect_encoded_alike(in, in);
  expect_decoded_alike(encoded(in, {}), in);
}

// The header is a small part of the bytes, so half of the damage goes there.
TEST_P(LosslessKernels, RefuseTheSame) {
  constexpr size_t kHead = 200;
  for (const Kind& kind : kinds())
    for (int round = 0; round < 150; ++round) {
      SCOPED_TRACE(kind.name);
      const Floats in = values(kind, 1 + random() % (round % 8 == 0 ? 17000 : 1000));
      Bytes8 bytes = encoded(in, {});
      const size_t end = round % 2 == 0 ? used : std::min(used, kHead);
      for (size_t left = 1 + random() % 3; left > 0; --left)
        bytes[random() % end] = static_cast<uint8_t>(random());
      expect_decoded_alike(bytes, in);
    }
}

TEST_P(LosslessKernels, RefuseSizesThatMoveToANeighbour) {
  const Floats in = values(kinds()[0], 3 * LosslessChunk::kElements);
  const Bytes8 good = encoded(in, {});
  for (int chunk = 0; chunk < 2; ++chunk) {
    Bytes8 bytes = good;
    // The change keeps the sum of the sizes.
    uint8_t* const sizes = bytes.data() + kLosslessLength + chunk * kLosslessSize;
    sizes[0] = static_cast<uint8_t>(sizes[0] ^ 1);
    sizes[2] = static_cast<uint8_t>(sizes[2] ^ 1);
    expect_decoded_alike(bytes, in);
  }
}

// Under AddressSanitizer this checks that nothing behind the message is read.
TEST_P(LosslessKernels, RefuseSizesBeyondTheMessage) {
  constexpr uint32_t kChunks = 3;
  const Floats in = values(kinds()[0], kChunks * LosslessChunk::kElements);
  Bytes8 bytes = encoded(in, {});
  std::fill_n(bytes.begin() + kLosslessLength, kChunks * kLosslessSize, uint8_t{0xff});
  const uint32_t length = kChunks * (kLosslessSize + 0xffff);
  std::memcpy(bytes.data(), &length, sizeof length);
  expect_decoded_alike(bytes, in);
}

INSTANTIATE_TEST_SUITE_P(DTypes, LosslessKernels,
                         testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

}  // namespace
}  // namespace ringdist
