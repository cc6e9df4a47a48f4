// Pool of pinned memory. Blocks are reused, because allocation is slow and may wait for the device.
// Any thread.
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

// Must be owned by a shared_ptr, which its blocks share.
class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  // Limit of unused memory. Blocks beyond it are freed.
  static constexpr size_t kMostKept = size_t{256} << 20;

  // `cuda` must outlive the pool and its blocks.
  explicit PinnedPool(CudaApi& cuda) : cuda_(cuda) {}
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // Returns a block of at least `bytes` bytes. The size is rounded up to a power of two, at least
  // 4096. The block returns to the pool with its last owner. Errors: those of
  // CudaApi::allocate_pinned().
  Result<std::shared_ptr<std::byte>> take(size_t bytes);

 private:
  // Takes back a block of `bytes` bytes from its last owner, on any thread. May wait for the
  // device, because it may free blocks.
  void put_back(std::byte* memory, size_t bytes);

  CudaApi& cuda_;
  std::mutex mutex_;  // a leaf lock
  // Unused blocks by size. No list is empty.
  std::map<size_t, std::vector<std::byte*>> free_ RINGDIST_GUARDED_BY(mutex_);
  size_t kept_ RINGDIST_GUARDED_BY(mutex_) = 0;  // total bytes in free_
};

}  // namespace ringdist::gpu
