// The Warp of a running kernel (warp.h). nvcc only.
#pragma once

#include <cstdint>

#include "cuda/warp/warp.h"

namespace ringdist {

// Models the concept Warp with the warp intrinsics of CUDA.
class DeviceWarp {
 public:
  // A variable of this lane. The index is ignored, because a thread has only its own lane.
  template <typename T>
  class Lanes {
   public:
    __device__ T& operator[](int) { return own_; }
    __device__ const T& operator[](int) const { return own_; }

   private:
    T own_;
  };

  // `scratch` is shared memory for this warp only.
  __device__ explicit DeviceWarp(void* scratch)
      : scratch_(scratch), lane_(static_cast<int>(threadIdx.x % kWarp)) {}

  template <typename Body>
  __device__ void each(Body body) const {
    body(lane_);
  }
  __device__ uint32_t maximum(Lanes<uint32_t> x) const { return __reduce_max_sync(kAll, x[lane_]); }
  __device__ uint32_t sum(Lanes<uint32_t> x) const { return __reduce_add_sync(kAll, x[lane_]); }
  __device__ uint32_t ballot(Lanes<uint32_t> x) const { return __ballot_sync(kAll, x[lane_] != 0); }
  template <typename T>
  __device__ Lanes<T> shuffled(Lanes<T> x, int flip) const {
    x[lane_] = __shfl_xor_sync(kAll, x[lane_], flip);
    return x;
  }
  template <typename T, typename From>
  __device__ Lanes<T> gathered(Lanes<T> x, From from) const {
    x[lane_] = __shfl_sync(kAll, x[lane_], from(lane_));
    return x;
  }
  template <typename T>
  __device__ T of(Lanes<T> x, int lane) const {
    return __shfl_sync(kAll, x[lane_], lane);
  }
  __device__ void* scratch() const { return scratch_; }
  __device__ void add(uint32_t* word, uint32_t value) const { atomicAdd(word, value); }
  __device__ void sync() const { __syncwarp(kAll); }

 private:
  // All lanes take part in each operation, as a body branches only on common values.
  static constexpr unsigned kAll = 0xffffffff;

  void* scratch_;
  int lane_;
};

}  // namespace ringdist
