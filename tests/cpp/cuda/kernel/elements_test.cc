// Operations of devices on values, other than codecs. They run on the host and must give the bits
// of the CPU loops (kernel/cast.h, kernel/feedback.h).
#include "cuda/kernel/elements.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "kernel/cast.h"
#include "kernel/feedback.h"
#include "support/floats.h"
#include "support/host_kernels.h"

namespace ringdist {
namespace {

constexpr size_t kCount = 777;

class CudaElements : public testing::Test {
 protected:
  // Returns ordinary values, and some that are zero, tiny, huge or not finite.
  Floats values() {
    std::normal_distribution<float> normal;
    Floats out(kCount);
    for (float& x : out) x = normal(random_);
    out[1] = 0;
    out[2] = -0.0f;
    out[3] = std::numeric_limits<float>::infinity();
    out[4] = std::numeric_limits<float>::quiet_NaN();
    out[5] = std::numeric_limits<float>::denorm_min();
    out[6] = std::numeric_limits<float>::max();
    out[7] = 65519.5f;
    return out;
  }
  static std::vector<std::byte> stored(DType dtype, const Floats& in) {
    std::vector<std::byte> out(in.size() * dtype_size(dtype));
    narrow(dtype, in, out);
    return out;
  }

  static constexpr auto kWhole = static_cast<int64_t>(kCount);
  static constexpr DType kStored[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
  const uint32_t seed_ = std::random_device()();
  std::mt19937 random_{seed_};
  testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
};

TEST_F(CudaElements, ReadWidens) {
  for (const DType dtype : kStored) {
    const auto in = stored(dtype, values());
    Floats expected = values(), out = expected;
    widen_add(dtype, in, expected);
    host_kernels::run(gpu::Read{dtype, in.data(), true, out.data(), kWhole});
    EXPECT_TRUE(same_but_for_nans(out, expected)) << dtype_name(dtype);
    widen(dtype, in, expected);
    host_kernels::run(gpu::Read{dtype, in.data(), false, out.data(), kWhole});
    EXPECT_TRUE(same_but_for_nans(out, expected)) << dtype_name(dtype);
  }
}

TEST_F(CudaElements, ContributeAddsTheResidual) {
  for (const bool first : {false, true})
    for (const bool feedback : {false, true}) {
      const Floats in = values();
      Floats old_residual = values(), expected = values(), sum = expected;
      add_contribution(expected, first, in,
                       feedback ? std::span<float>(old_residual) : std::span<float>());
      const gpu::ResidualPointers device =
          feedback ? gpu::ResidualPointers{old_residual.data(), old_residual.data()}
                   : gpu::ResidualPointers{};
      host_kernels::run(gpu::Contribute{in.data(), device, first, sum.data(), kWhole});
      EXPECT_TRUE(same_but_for_nans(sum, expected));
    }
}

TEST_F(CudaElements, KeepLossIsThatOfTheOwner) {
  const Floats sum = values(), stored = values(), old_residual = values();
  for (const bool raw : {false, true}) {
    Floats expected = values(), new_residual = expected;
    const Floats left = expected;  // the residual after encoding
    const float* const before = raw ? old_residual.data() : left.data();
    add_loss({before, expected.data(), kCount}, /*keep=*/!raw, 3.0f, sum, stored);
    host_kernels::run(gpu::WriteResidual{
        {old_residual.data(), new_residual.data()}, raw, 3.0f, sum.data(), stored.data(), kWhole});
    EXPECT_TRUE(same_but_for_nans(new_residual, expected)) << raw;
  }
}

// If all values of a part are zero, its residual is neither added nor changed.
TEST_F(CudaElements, NothingIsPaidOfASilentPart) {
  const uint32_t awake = 0;
  const Floats zeros(kCount), old_residual = values();
  Floats new_residual(kCount, 7.0f), out(kCount, 7.0f);
  const gpu::ResidualPointers residual{old_residual.data(), new_residual.data(), &awake};
  host_kernels::run(gpu::Write{DType::kFloat32, zeros.data(), residual, out.data(), kWhole});
  EXPECT_TRUE(same(out, zeros));
  EXPECT_TRUE(same(new_residual, old_residual));
  host_kernels::run(gpu::Contribute{zeros.data(), residual, true, out.data(), kWhole});
  EXPECT_TRUE(same(out, zeros));
  new_residual.assign(kCount, 7.0f);
  host_kernels::run(gpu::WriteResidual{residual, true, 1.0f, zeros.data(), zeros.data(), kWhole});
  Floats expected(kCount);
  add_loss({old_residual.data(), expected.data(), kCount}, /*keep=*/true, 1.0f, zeros, zeros);
  EXPECT_TRUE(same_but_for_nans(new_residual, expected));
}

TEST_F(CudaElements, FindValuesSeesNoZeroOfEitherSign) {
  Floats in(kCount);
  in[3] = -0.0f;
  uint32_t found = 0;
  host_kernels::run(gpu::FindValues{DType::kFloat32, in.data(), &found, kWhole});
  EXPECT_EQ(found, 0u);
  in[kCount - 1] = std::numeric_limits<float>::denorm_min();
  host_kernels::run(gpu::FindValues{DType::kFloat32, in.data(), &found, kWhole});
  EXPECT_EQ(found, 1u);
}

TEST_F(CudaElements, DivideDivides) {
  Floats expected = values(), out = expected;
  divide(expected, 3.0f);
  host_kernels::run(gpu::Divide{out.data(), 3.0f, kWhole});
  EXPECT_TRUE(same_but_for_nans(out, expected));
}

}  // namespace
}  // namespace ringdist
