// Reductions of devices, run on the host. They must give the CPU's bits for every dtype and op,
// from arbitrary bytes.
#include "cuda/kernel/reduction.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <span>
#include <vector>

#include "kernel/reduce.h"
#include "support/host_kernels.h"

namespace ringdist {
namespace {

constexpr int kDTypes = static_cast<int>(DType::kFloat8E5M2) + 1;
constexpr int64_t kNumbers = 1031;

using Memory = std::vector<std::byte>;

void expect_alike(DType dtype, ReduceOp op, int sources, int64_t divisor, std::mt19937& random) {
  std::vector<Memory> in(static_cast<size_t>(sources));
  std::vector<const std::byte*> at;
  gpu::ReduceCall call{dtype, op, {}, divisor, nullptr, kNumbers};
  for (Memory& one : in) {
    one.resize(static_cast<size_t>(kNumbers) * dtype_size(dtype));
    for (std::byte& byte : one) byte = static_cast<std::byte>(random());
    at.push_back(one.data());
    call.sources.at[call.sources.count++] = one.data();
  }
  Memory expected(in[0].size()), out(in[0].size());
  reduce(dtype, op, expected.data(), at, static_cast<size_t>(kNumbers), divisor);
  call.out = out.data();
  host_kernels::reduce(call);
  ASSERT_TRUE(out == expected) << dtype_name(dtype) << " " << reduce_op_name(op) << " of "
                               << sources << ", divided by " << divisor;
  call.out = in[0].data();  // in place
  host_kernels::reduce(call);
  ASSERT_TRUE(in[0] == expected);
}

TEST(CudaReduction, HasTheBitsOfTheCpu) {
  const uint32_t seed = std::random_device()();
  std::mt19937 random(seed);
  for (int d = 0; d < kDTypes; ++d)
    for (const ReduceOp op : all_reduce_ops()) {
      const auto dtype = static_cast<DType>(d);
      if (!is_reducible(dtype, op)) continue;
      for (const int sources : {1, 2, 3, 8}) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        expect_alike(dtype, op, sources, 1, random);
        if (op == ReduceOp::kAvg) expect_alike(dtype, op, sources, sources, random);
        if (HasFatalFailure()) return;
      }
    }
}

}  // namespace
}  // namespace ringdist
