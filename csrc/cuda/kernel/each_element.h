// A kernel that gives each thread elements of its own, and its launch. nvcc only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/kernel/calls.h"

namespace ringdist::gpu {

inline constexpr int kThreads = 256;  // of a thread block
inline constexpr int64_t kMostGroups = 1 << 16;

template <typename Body>
__global__ void __launch_bounds__(kThreads) each_of(Body body) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < body.count;
       i += step)
    body(i);
}

// body(i) for every i below body.count.
template <typename Body>
LaunchError for_each_element(const Body& body, void* stream) {
  if (body.count == 0) return cudaSuccess;
  const int64_t wanted = (body.count + kThreads - 1) / kThreads;
  const auto groups = static_cast<unsigned>(wanted < kMostGroups ? wanted : kMostGroups);
  each_of<<<groups, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(body);
  return cudaGetLastError();
}

}  // namespace ringdist::gpu
