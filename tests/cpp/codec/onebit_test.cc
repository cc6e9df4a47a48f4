// Handling of poison as required by onebit.spec.md: no NaN is sent, because its sign differs
// between processors.
#include <gtest/gtest.h>

#include <limits>
#include <span>
#include <vector>

#include "codec/codec.h"
#include "support/floats.h"

namespace ringdist {
namespace {

TEST(Onebit, APoisonedBlockSetsNoSign) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* name : {"onebit", "onebit+h"}) {
    const CodecPtr codec = parse_codec(name).value();
    for (const Floats& in : {Floats{-1, nan, -2, 3}, Floats{-1, -nan, -2, 3},
                             Floats(256, -std::numeric_limits<float>::infinity())}) {
      const auto count = static_cast<int64_t>(in.size());
      std::vector<std::byte> out(codec->max_bytes(count, DType::kFloat32));
      codec->encode(in, DType::kFloat32, {}, {.shared = 1, .own = 2}, out);
      EXPECT_EQ(out[0], std::byte{0xc0});
      EXPECT_EQ(out[1], std::byte{0x7f});
      for (const std::byte signs : std::span(out).subspan(2))
        EXPECT_EQ(signs, std::byte{0}) << name;
    }
  }
}

}  // namespace
}  // namespace ringdist
