// Memory and time of a GPU. A failed call ends the program with CUDA's message.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

namespace gpu_check {

inline void check(int error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(static_cast<cudaError_t>(error)));
  std::exit(1);
}

// An array of T in the memory of the device, initially zeros.
template <typename T>
class DeviceMemory {
 public:
  explicit DeviceMemory(size_t count) : count_(count) {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), bytes()), "memory of the device");
    check(cudaMemset(data_, 0, bytes()), "memory of the device");
  }
  explicit DeviceMemory(const std::vector<T>& values) : DeviceMemory(values.size()) {
    check(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice), "copy to the device");
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;

  T* data() const { return data_; }
  size_t bytes() const { return count_ * sizeof(T); }
  std::vector<T> values() const {
    std::vector<T> out(count_);
    check(cudaMemcpy(out.data(), data_, bytes(), cudaMemcpyDeviceToHost), "copy from the device");
    return out;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

// Returns the least time of `rounds` calls of run(stream), in seconds.
template <typename Run>
double least_seconds(int rounds, const Run& run) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  float least = 0;
  for (int round = -2; round < rounds; ++round) {  // the first two warm up
    check(cudaEventRecord(begin, nullptr), "event");
    run(nullptr);
    check(cudaEventRecord(end, nullptr), "event");
    check(cudaEventSynchronize(end), "a kernel");
    float took = 0;
    check(cudaEventElapsedTime(&took, begin, end), "event");
    if (round == 0 || (round > 0 && took < least)) least = took;
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return static_cast<double>(least) * 1e-3;
}

}  // namespace gpu_check
