// Scratch memory for ops, kept between them: a fresh large allocation costs a page fault for every
// 4 KiB. Any thread; shared by the ops that took from it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "base/buffers.h"
#include "base/thread_annotations.h"

namespace ringdist {

class ScratchPool {
 public:
  using Block = std::unique_ptr<std::byte[]>;

  Block take(size_t bytes) {
    std::lock_guard lock(mutex_);
    auto it = free_.find(size_class(bytes));
    if (it == free_.end()) return std::make_unique_for_overwrite<std::byte[]>(size_class(bytes));
    Block block = std::move(it->second);
    free_.erase(it);
    kept_ -= size_class(bytes);
    return block;
  }

  void give_back(Block block, size_t bytes) {
    std::lock_guard lock(mutex_);
    if (!block || size_class(bytes) > kMaxKept) return;
    kept_ += size_class(bytes);
    for (; kept_ > kMaxKept; free_.erase(free_.begin())) kept_ -= free_.begin()->first;
    free_.emplace(size_class(bytes), std::move(block));
  }

 private:
  static constexpr size_t kMaxKept = size_t{64} << 20;
  static size_t size_class(size_t bytes) { return std::bit_ceil(bytes); }

  std::mutex mutex_;
  std::multimap<size_t, Block> free_ RINGDIST_GUARDED_BY(mutex_);
  size_t kept_ RINGDIST_GUARDED_BY(mutex_) = 0;
};

// A copy of bytes, in a pool's memory.
class PooledCopy {
 public:
  PooledCopy(std::shared_ptr<ScratchPool> pool, ConstBytes bytes)
      : pool_(std::move(pool)), size_(bytes.size()) {
    if (bytes.empty()) return;
    block_ = pool_->take(size_);
    std::memcpy(block_.get(), bytes.data(), size_);
  }
  PooledCopy(PooledCopy&&) = default;
  ~PooledCopy() {
    if (block_) pool_->give_back(std::move(block_), size_);
  }

  ConstBytes bytes() const { return {block_.get(), size_}; }

 private:
  std::shared_ptr<ScratchPool> pool_;
  ScratchPool::Block block_;
  size_t size_;
};

}  // namespace ringdist
