// The bodies of the kernels of `onebit`, run by a warp on the host: the spec's examples, and bytes
// that no encoder writes. tests/cpp/conformance/cuda_codec_test.cc holds them against the codec
// itself.
#include <gtest/gtest.h>

#include <vector>

#include "cuda/kernel/sign_body.h"
#include "support/floats.h"
#include "support/host_warp.h"

namespace ringdist {
namespace {

std::vector<uint8_t> encoded(const Floats& in) {
  const auto count = static_cast<int64_t>(in.size());
  const int64_t whole = count / gpu::kSignCount;
  const auto tail = static_cast<int>(count % gpu::kSignCount);
  std::vector<uint8_t> out(static_cast<size_t>(whole * gpu::sign_block_bytes(gpu::kSignCount) +
                                               (tail == 0 ? 0 : gpu::sign_block_bytes(tail))));
  for_each_block(gpu::blocks(count, gpu::kSignCount),
                 gpu::TakingSigns{in.data(), {}, count, out.data()});
  return out;
}

Floats decoded(const std::vector<uint8_t>& in, Floats out, bool accumulate, int& malformed) {
  const auto count = static_cast<int64_t>(out.size());
  for_each_block(gpu::blocks(count, gpu::kSignCount),
                 gpu::ReadingSigns{in.data(), accumulate, out.data(), count, &malformed});
  return out;
}

TEST(DeviceSign, GivesTheBytesOfTheSpec) {
  using Coded = std::vector<uint8_t>;
  EXPECT_EQ(encoded({1, -2, 3, -6}), (Coded{0x40, 0x40, 0x0a}));
  EXPECT_EQ(encoded({0, -0x1.8p-140f, 0}), (Coded{0x01, 0x89, 0x02}));
  int malformed = 0;
  EXPECT_EQ(decoded({0x40, 0x40, 0x0a}, Floats(4), false, malformed), (Floats{3, -3, 3, -3}));
  EXPECT_EQ(decoded({0x01, 0x89, 0x02}, {5, 6, 7}, false, malformed), (Floats{0, -0x1p-140f, 0}));
  EXPECT_EQ(decoded({0x40, 0x40, 0x0a}, {1, 1, 1, 1}, true, malformed), (Floats{4, -2, 4, -2}));
  EXPECT_EQ(malformed, 0);
}

TEST(DeviceSign, TellsOfAnElementThatIsNotThere) {
  int malformed = 0;
  EXPECT_EQ(decoded({0x03, 0x89, 0x02}, {5, 6, 7}, false, malformed), (Floats{5, 6, 7}));
  EXPECT_EQ(malformed, 1);
}

}  // namespace
}  // namespace ringdist
