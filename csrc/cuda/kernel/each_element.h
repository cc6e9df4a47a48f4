// Kernels in which each thread works on elements of its own, and their launches. nvcc only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/kernel/batched_calls.h"
#include "cuda/kernel/calls.h"
#include "cuda/kernel/elements.h"

namespace ringdist::gpu {

// Limit of thread blocks in a launch. If there are more batches, each block works on several.
inline constexpr int64_t kMostGroups = 1 << 16;

inline unsigned groups_for(int64_t batches) {
  return static_cast<unsigned>(batches < kMostGroups ? batches : kMostGroups);
}

template <typename Body>
__global__ void __launch_bounds__(kThreads) each_of(Body body) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < body.count;
       i += step)
    body(i);
}

template <typename Body>
__global__ void __launch_bounds__(kThreads) each_of_many(const __grid_constant__ Body body) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t i = blockIdx.x; i < body.batches(); i += gridDim.x) body(thread, i);
}

// Queues a kernel on `stream` that calls body(i) for every i below body.count. Returns the error of
// the launch. The memory that the body names must live until the kernel has run. The launch()
// functions below do the same for calls on elements.
template <typename Body>
LaunchError for_each_element(const Body& body, void* stream) {
  if (body.count == 0) return cudaSuccess;
  const int64_t batches = InBatches<Body>{body}.batches();
  each_of<<<groups_for(batches), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(body);
  return cudaGetLastError();
}

template <typename Each>
LaunchError launch(const InBatches<Each>& body, void* stream) {
  return for_each_element(body.each, stream);
}

template <typename Each>
LaunchError launch(const BatchedCalls<InBatches<Each>>& body, void* stream) {
  if (body.batches() == 0) return cudaSuccess;
  each_of_many<<<groups_for(body.batches()), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      body);
  return cudaGetLastError();
}

}  // namespace ringdist::gpu
