// A kernel that lets each warp work on batches of its own, and its launch. nvcc only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/grid/device_warp.h"
#include "cuda/kernel/calls.h"

namespace ringdist::gpu {

inline constexpr int kWarps = 8;  // of a thread block
// Many more than run at once, so that the last of them to end are few beside all.
inline constexpr int64_t kMostThreadBlocks = 1 << 13;

template <typename Body>
__global__ void __launch_bounds__(kWarps* kWarp) each_batch(int64_t count, Body body) {
  constexpr int kEach = Body::kScratch == 0 ? 1 : Body::kScratch;
  __shared__ alignas(16) uint8_t scratch[kWarps][kEach];
  const int warp_index = static_cast<int>(threadIdx.x / kWarp);
  DeviceWarp warp(scratch[warp_index]);
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kWarps + warp_index; i < count; i += step)
    body(warp, i);
}

// body(warp, index) for every index below body.batches(), with Body::kScratch bytes for each warp.
template <typename Body>
LaunchError for_each_batch(void* stream, Body body) {
  const int64_t count = body.batches();
  if (count == 0) return cudaSuccess;
  const int64_t wanted = (count + kWarps - 1) / kWarps;
  const auto thread_blocks =
      static_cast<unsigned>(wanted < kMostThreadBlocks ? wanted : kMostThreadBlocks);
  each_batch<<<thread_blocks, kWarps * kWarp, 0, static_cast<cudaStream_t>(stream)>>>(count, body);
  return cudaGetLastError();
}

}  // namespace ringdist::gpu
