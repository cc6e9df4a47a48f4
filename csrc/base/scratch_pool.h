// Pool of scratch memory. Blocks are kept for the next user, because a fresh large allocation costs
// a page fault for every 4 KiB. Any thread; the ops that took memory share ownership of the pool.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "base/buffers.h"
#include "base/thread_annotations.h"

namespace ringdist {

// Free blocks by size class (powers of two). It keeps at most 256 MiB of them.
class ScratchPool {
 public:
  using Block = std::unique_ptr<std::byte[]>;

  // Returns a block of at least `bytes`, with undefined contents. Throws std::bad_alloc.
  Block take(size_t bytes) {
    std::lock_guard lock(mutex_);
    std::vector<Block>& free = free_[size_class(bytes)];
    if (free.empty()) return std::make_unique_for_overwrite<std::byte[]>(size_of(bytes));
    Block block = std::move(free.back());
    free.pop_back();
    kept_ -= size_of(bytes);
    return block;
  }

  // Takes back a block of take(bytes); `bytes` is the number that was given to take(). If the
  // pool is full, frees the smallest blocks first. A block of more than 256 MiB is freed at once.
  void give_back(Block block, size_t bytes) {
    std::lock_guard lock(mutex_);
    if (!block || size_of(bytes) > kMaxKept) return;
    kept_ += size_of(bytes);
    for (size_t smallest = 0; kept_ > kMaxKept; ++smallest)
      for (; kept_ > kMaxKept && !free_[smallest].empty(); free_[smallest].pop_back())
        kept_ -= size_t{1} << smallest;
    free_[size_class(bytes)].push_back(std::move(block));
  }

 private:
  static constexpr size_t kMaxKept = size_t{256} << 20;  // bytes of free blocks
  // Returns the size of the block for a request of `bytes`: the next power of two.
  static size_t size_of(size_t bytes) { return std::bit_ceil(bytes); }
  static size_t size_class(size_t bytes) {
    return static_cast<size_t>(std::countr_zero(size_of(bytes)));
  }

  std::mutex mutex_;
  std::array<std::vector<Block>, 64> free_
      RINGDIST_GUARDED_BY(mutex_);  // indexed by log2 of the block size
  size_t kept_ RINGDIST_GUARDED_BY(mutex_) = 0;
};

// Shared ownership of a block of a pool; the last owner returns it. A default-constructed one has
// no memory. It keeps its pool alive.
class PooledBuffer {
 public:
  PooledBuffer() = default;
  // Takes a block of `bytes` from the pool, with undefined contents. Throws std::bad_alloc.
  PooledBuffer(std::shared_ptr<ScratchPool> pool, size_t bytes) : size_(bytes) {
    std::byte* const memory = pool->take(bytes).release();
    memory_ = {memory, [pool = std::move(pool), bytes](std::byte* back) {
                 pool->give_back(ScratchPool::Block(back), bytes);
               }};
  }

  explicit operator bool() const { return memory_ != nullptr; }
  Bytes bytes() const { return {memory_.get(), size_}; }
  // Reduces bytes() to its first `bytes` bytes. There must be so many. The block keeps its size.
  void truncate(size_t bytes) { size_ = bytes; }
  // Returns a pointer that keeps the memory alive.
  std::shared_ptr<const void> owner() const { return memory_; }

 private:
  std::shared_ptr<std::byte> memory_;
  size_t size_ = 0;
};

// Returns a copy of `bytes` in memory of the pool; without bytes it has no memory.
inline PooledBuffer pooled_copy(const std::shared_ptr<ScratchPool>& pool, ConstBytes bytes) {
  if (bytes.empty()) return {};
  PooledBuffer out(pool, bytes.size());
  std::memcpy(out.bytes().data(), bytes.data(), bytes.size());
  return out;
}

}  // namespace ringdist
