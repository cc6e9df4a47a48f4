// The codec `none` has no kernel of its own. gpu::Write, run on the host, must give its bytes and
// residuals.
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "codec/none.h"
#include "cuda/kernel/elements.h"
#include "kernel/cast.h"
#include "support/floats.h"
#include "support/host_kernels.h"

namespace ringdist {
namespace {

constexpr size_t kValues = 777;

Floats values(std::mt19937& random) {
  std::normal_distribution<float> normal;
  Floats out(kValues);
  for (float& x : out) x = normal(random);
  out[3] = std::numeric_limits<float>::infinity();
  out[4] = std::numeric_limits<float>::quiet_NaN();
  out[6] = std::numeric_limits<float>::max();
  return out;
}

TEST(CudaNone, WriteIsTheCodec) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16})
    for (const bool feedback : {false, true}) {
      const Floats in = values(random), old_residual = values(random);
      Floats expected_residual(kValues, 7.0f), new_residual(kValues, 7.0f);
      std::vector<std::byte> expected(kValues * dtype_size(dtype)), out(expected.size());
      const ResidualSpan residual =
          feedback ? ResidualSpan(old_residual.data(), expected_residual.data(), kValues)
                   : ResidualSpan();
      no_codec().encode(in, dtype, residual, {}, expected);
      const gpu::ResidualPointers device =
          feedback ? gpu::ResidualPointers{old_residual.data(), new_residual.data()}
                   : gpu::ResidualPointers{};
      host_kernels::run(
          gpu::Write{dtype, in.data(), device, out.data(), static_cast<int64_t>(kValues)});
      Floats a(kValues), b(kValues);
      widen(dtype, out, a);
      widen(dtype, expected, b);
      EXPECT_TRUE(same_but_for_nans(a, b)) << dtype_name(dtype);
      EXPECT_TRUE(same_but_for_nans(new_residual, expected_residual)) << dtype_name(dtype);
    }
}

}  // namespace
}  // namespace ringdist
