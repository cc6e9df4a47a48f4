// The kernel in which each warp works on batches of its own, and its launch. nvcc only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/kernel/batched_calls.h"
#include "cuda/kernel/calls.h"
#include "cuda/warp/device.h"
#include "cuda/warp/device_warp.h"

namespace ringdist::gpu {

inline constexpr int kWarps = 8;  // warps of a thread block
// Limit of thread blocks. It is much larger than the number that runs at once, so that the last
// ones to end are a small part of all.
inline constexpr int64_t kMostThreadBlocks = 1 << 13;

// Lets the warps of the grid do all batches in turn, so that a grid of any size is enough.
template <typename Body>
RINGDIST_DEVICE void do_batches(int64_t count, const Body& body) {
  // An array of no bytes is not allowed.
  constexpr int kEach = Body::kScratch == 0 ? 1 : Body::kScratch;
  __shared__ alignas(16) uint8_t scratch[kWarps][kEach];
  const int warp_index = static_cast<int>(threadIdx.x / kWarp);
  DeviceWarp warp(scratch[warp_index]);
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kWarps + warp_index; i < count; i += step)
    body(warp, i);
}

template <typename Body>
__global__ void __launch_bounds__(kWarps* kWarp) each_batch(int64_t count, Body body) {
  do_batches(count, body);
}

// The bodies are read from the launch's parameters. For a single body this would cost registers.
template <typename Body>
__global__ void __launch_bounds__(kWarps* kWarp)
    each_batch_of_many(int64_t count, const __grid_constant__ BatchedCalls<Body> all) {
  do_batches(count, all);
}

inline unsigned thread_blocks_for(int64_t batches) {
  const int64_t wanted = (batches + kWarps - 1) / kWarps;
  return static_cast<unsigned>(wanted < kMostThreadBlocks ? wanted : kMostThreadBlocks);
}

// Enqueues a kernel that calls body(warp, index) for every index below body.batches(). Each warp
// has Body::kScratch bytes of shared memory. Returns the error of the launch. Memory that the body
// names must live until the kernel has run.
template <typename Body>
LaunchError for_each_batch(void* stream, Body body) {
  const int64_t count = body.batches();
  if (count == 0) return cudaSuccess;
  each_batch<<<thread_blocks_for(count), kWarps * kWarp, 0, static_cast<cudaStream_t>(stream)>>>(
      count, body);
  return cudaGetLastError();
}

template <typename Body>
LaunchError for_each_batch(void* stream, const BatchedCalls<Body>& all) {
  const int64_t count = all.batches();
  if (count == 0) return cudaSuccess;
  each_batch_of_many<<<thread_blocks_for(count), kWarps * kWarp, 0,
                       static_cast<cudaStream_t>(stream)>>>(count, all);
  return cudaGetLastError();
}

}  // namespace ringdist::gpu
