// Loops of error feedback.
#include "kernel/feedback.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace ringdist {
namespace {

TEST(PayInFull, AddsAndClearsTheResidual) {
  constexpr size_t kCount = 37;
  std::vector<float> in(kCount);
  std::vector<float> residual(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    in[i] = static_cast<float>(i) - 11;
    residual[i] = 0.25f * static_cast<float>(i);
  }
  in[5] = std::numeric_limits<float>::infinity();
  in[6] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> next(kCount, -1);
  std::vector<std::byte> bytes(kCount * sizeof(float) + 3);
  const Bytes out = Bytes(bytes).subspan(3);  // unaligned
  pay_in_full(in, {residual.data(), next.data(), kCount}, out);
  for (size_t i = 0; i < kCount; ++i) {
    float sum = 0;
    std::memcpy(&sum, out.data() + i * sizeof(float), sizeof(float));
    if (i == 5 || i == 6) {
      EXPECT_FALSE(std::isfinite(sum));
      EXPECT_EQ(next[i], residual[i]) << "a value that says nothing pays nothing";
    } else {
      EXPECT_EQ(sum, in[i] + residual[i]);
      EXPECT_EQ(next[i], 0);
    }
  }
}

// Old and new residuals may share memory.
TEST(PayInFull, WorksInPlace) {
  std::vector<float> in{1, 2, 3};
  std::vector<float> residual{0.5f, 0, -3};
  std::vector<std::byte> bytes(sizeof(float) * 3);
  pay_in_full(in, residual, bytes);
  float sum[3];
  std::memcpy(sum, bytes.data(), bytes.size());
  EXPECT_EQ(sum[0], 1.5f);
  EXPECT_EQ(sum[2], 0);
  EXPECT_EQ(residual, (std::vector<float>{0, 0, 0}));
}

}  // namespace
}  // namespace ringdist
