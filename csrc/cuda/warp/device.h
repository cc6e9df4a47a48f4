// What a kernel's body needs so that one text serves two compilers: nvcc, for the device, and any
// other, for tests on the host.
#pragma once

#include <bit>
#include <cstdint>

#ifdef __CUDACC__
#define RINGDIST_DEVICE __device__ __forceinline__
// Before a loop whose rounds are to be laid out one after another: its arrays stay in registers.
#define RINGDIST_UNROLL _Pragma("unroll")
#else
#define RINGDIST_DEVICE inline
#define RINGDIST_UNROLL
#endif

namespace ringdist {

// Of a value that is not 0. What nvcc 13.0 makes of std::countr_zero() is always 32 on a device.
constexpr int lowest_bit(uint32_t x) { return std::popcount((x & (0 - x)) - 1); }

// The lowest bit becomes the highest.
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
