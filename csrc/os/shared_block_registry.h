// All blocks of memory of this process that other processes may read (shared_block.h), by where
// they lie. Global, because whoever frees memory says no more than its address. Any thread; a
// forked child can go on to use, free and make blocks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/thread_annotations.h"
#include "os/doorbell.h"
#include "os/shared_block.h"

namespace ringdist {

class SharedBlockRegistry {
 public:
  static constexpr size_t kMost = 256;                  // each holds a descriptor
  static constexpr size_t kMostIdle = size_t{1} << 30;  // bytes
  static SharedBlockRegistry& of_process();

  // Between the two a block that is freed is kept, for the next who needs one of its size: a new
  // one costs zeroes and page faults, here and at its readers. Regions may overlap, and lie in each
  // other; each is its thread's. A forked child begins outside.
  void enter_region();
  void leave_region();
  // Of the calling thread.
  static bool in_region();

  // Memory that begins a page. Null where there may be no more such blocks, which is
  // logged once: take other memory. Error: kSystem, where the machine has not so much memory left;
  // to try would end processes.
  Result<std::byte*> allocate(size_t bytes);
  // False if it is not the beginning of a block.
  bool free(std::byte* data);

  // The block of this process, not of its parent, in which all of the range lies, or null. Not to
  // be asked while that memory is freed.
  std::shared_ptr<SharedBlock> find(ConstBytes range) const;

  // How many blocks were freed that had been lent. The doorbell of each watcher is rung when there
  // is one more; it lives until unwatch().
  uint64_t frees() const { return frees_.load(std::memory_order_acquire); }
  void watch(const Doorbell& doorbell);
  void unwatch(const Doorbell& doorbell);

  // For users to see.
  struct Figures {
    uint64_t blocks;  // in use
    uint64_t bytes;
    uint64_t bytes_read;  // by others where they lie, since the process began
  };
  Figures figures() const;
  void count_read(size_t bytes) { bytes_read_.fetch_add(bytes, std::memory_order_relaxed); }

 private:
  struct Entry {
    std::shared_ptr<SharedBlock> block;
    uint64_t forks;  // when it was given out: a child may have it since
    bool idle = false;
  };
  using RetiredBlocks = std::vector<std::shared_ptr<SharedBlock>>;

  SharedBlockRegistry() = default;
  static SharedBlockRegistry& make();
  void after_fork_in_child();
  Result<std::byte*> without(const Error& cause);
  Error require_memory(size_t bytes);
  // With the lock held.
  std::byte* reuse(size_t bytes);
  void make_idle(std::byte* data, Entry& entry, RetiredBlocks& retired);
  void drop_oldest(RetiredBlocks& retired);
  // Without it.
  void retire(const RetiredBlocks& retired);

  mutable std::mutex mutex_;  // a leaf; held while the process forks
  std::map<std::byte*, Entry> blocks_ RINGDIST_GUARDED_BY(mutex_);
  std::vector<std::byte*> idle_ RINGDIST_GUARDED_BY(mutex_);  // the oldest first
  size_t idle_bytes_ RINGDIST_GUARDED_BY(mutex_) = 0;
  int regions_ RINGDIST_GUARDED_BY(mutex_) = 0;
  uint64_t forks_ RINGDIST_GUARDED_BY(mutex_) = 0;  // of this process so far
  std::vector<const Doorbell*> watchers_ RINGDIST_GUARDED_BY(mutex_);
  bool warned_ RINGDIST_GUARDED_BY(mutex_) = false;
  std::atomic<size_t> count_ = 0;  // of blocks_
  std::atomic<uint64_t> frees_ = 0;
  std::atomic<uint64_t> bytes_read_ = 0;
};

}  // namespace ringdist
