// Macros and functions that let two compilers build the bodies of kernels. nvcc builds them for the
// device, and any other compiler builds them for tests on the host.
#pragma once

#include <bit>
#include <cstdint>

#ifdef __CUDACC__
#define RINGDIST_DEVICE __device__ __forceinline__
// Unrolls the loop that follows, so that its arrays stay in registers.
#define RINGDIST_UNROLL _Pragma("unroll")
#else
#define RINGDIST_DEVICE inline
#define RINGDIST_UNROLL
#endif

namespace ringdist {

// Returns the number of the lowest bit that is set. `x` must not be 0. std::countr_zero() is not
// used, because nvcc 13.0 compiles it to 32 on a device.
constexpr int lowest_bit(uint32_t x) { return std::popcount((x & (0 - x)) - 1); }

// Returns `x` with its bits in reverse order.
RINGDIST_DEVICE uint32_t reversed(uint32_t x) {
#ifdef __CUDA_ARCH__
  return __brev(x);
#else
  uint32_t out = 0;
  for (int i = 0; i < 32; ++i) out |= (x >> i & 1) << (31 - i);
  return out;
#endif
}

}  // namespace ringdist
