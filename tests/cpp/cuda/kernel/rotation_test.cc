#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <numeric>

#include "cuda/kernel/codec_bodies.h"
#include "support/host_warp.h"

namespace ringdist {
namespace {

using Block = gpu::Values<HostWarp, 4>;

TEST(DeviceRotation, TakesATailInRunsOfPowersOfTwo) {
  for (const auto& [element, begin, count] :
       {std::array{0, 0, 64}, {63, 0, 64}, {64, 64, 32}, {95, 64, 32}, {96, 96, 4}, {99, 96, 4}}) {
    const gpu::RotationBlock run = gpu::RotationBlock::of(element, 100);
    EXPECT_EQ(run.begin, begin);
    EXPECT_EQ(run.count, count);
  }
  EXPECT_EQ(gpu::RotationBlock::of(77, 128).count, 128);
}

TEST(DeviceRotation, GoesThereAndBack) {
  for (const int count : {1, 2, 3, 31, 32, 33, 100, 127, 128}) {
    HostWarp warp;
    const gpu::Rotation rotation({.shared = 42, .own = 7}, 3 * 128, count);
    Block x{};
    gpu::each_element<4>(warp, count, [&](int part, int lane, int i) {
      x.part[part][static_cast<size_t>(lane)] = static_cast<float>(i - 50);
    });
    const Block before = x;
    rotation.forward(warp, x);
    double length = 0;
    for (const auto& part : x.part)
      length = std::inner_product(part.begin(), part.end(), part.begin(), length);
    EXPECT_GT(length, 0);
    rotation.back(warp, x);  // small integers are not rounded
    for (int part = 0; part < 4; ++part) EXPECT_EQ(x.part[part], before.part[part]) << count;
  }
}

}  // namespace
}  // namespace ringdist
