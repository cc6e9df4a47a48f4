// Pinned memory that is used again, as to get it takes long and may wait for the device. Any
// thread.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/thread_annotations.h"
#include "cuda/api/cuda_api.h"

namespace ringdist::gpu {

class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  // Kept free at most; more goes back to the system.
  static constexpr size_t kMostKept = size_t{256} << 20;

  explicit PinnedPool(CudaApi& cuda) : cuda_(cuda) {}
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // At least so many bytes, at most twice as many; they come back with the last owner.
  Result<std::shared_ptr<std::byte>> take(size_t bytes);

 private:
  void put_back(std::byte* memory, size_t bytes);

  CudaApi& cuda_;
  std::mutex mutex_;  // a leaf
  // By size; none is empty.
  std::map<size_t, std::vector<std::byte*>> free_ RINGDIST_GUARDED_BY(mutex_);
  size_t kept_ RINGDIST_GUARDED_BY(mutex_) = 0;  // bytes
};

}  // namespace ringdist::gpu
