#include "plan/fingerprint.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <random>

namespace ringdist {
namespace {

TEST(Fingerprint, DescribesAnyBytes) {
  Fingerprint print{};
  print.kind = Collective::kAllreduce;
  print.dtype = DType::kFloat32;
  print.reduce_op = ReduceOp::kSum;
  print.count = 1;
  EXPECT_EQ(print.describe(), "all_reduce(float32, 1 element, SUM)");
  print.plan = Fingerprint::plan_part(~uint64_t{0}, 5);
  EXPECT_EQ(print.describe(), "all_reduce(float32, 1 element, SUM, codec int4)");
  print.plan |= Fingerprint::kOnDevice;
  EXPECT_EQ(print.describe(), "all_reduce(float32, 1 element, SUM, codec int4, on cuda)");
  const auto seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 1000; ++i) {
    std::array<unsigned char, sizeof(Fingerprint)> bytes;
    for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
    std::memcpy(static_cast<void*>(&print), bytes.data(), bytes.size());
    EXPECT_FALSE(print.describe().empty());
  }
}

}  // namespace
}  // namespace ringdist
