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

#include "base/buffers.h"
#include "base/error.h"
#include "base/thread_annotations.h"
#include "os/doorbell.h"
#include "os/fd.h"

namespace ringdist {

// A block of memory that other processes of the host may map for reading: a file without a name,
// sealed. Unlike a Mapping it is there in a forked child as well, and what the child writes its
// parent sees, as with torch's share_memory_().

// Made and freed by whoever owns the memory; others hold it for its file. Any thread.
class SharedBlock {
 public:
  // Of a file that create_memory() made, with memory allocated. Error: kSystem.
  static Result<std::shared_ptr<SharedBlock>> map(Fd file, size_t bytes);
  ~SharedBlock() { free(); }
  SharedBlock(const SharedBlock&) = delete;
  SharedBlock& operator=(const SharedBlock&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  bool contains(ConstBytes range) const;
  const Fd& file() const { return file_; }

  // Unmaps it here. The memory lives on while others map it, or hold the file.
  void free();
  bool freed() const { return freed_.load(std::memory_order_acquire); }
  // Somebody has the file, and must be told when the block is freed.
  void mark_exported() { exported_.store(true, std::memory_order_relaxed); }
  bool is_exported() const { return exported_.load(std::memory_order_relaxed); }
  // This process is a child of the one that made it: its file is closed here.
  bool inherited() const { return mark_.forked(); }

 private:
  SharedBlock(Fd file, std::byte* data, size_t size)
      : file_(std::move(file)), data_(data), size_(size) {}

  const Fd file_;
  std::byte* const data_;
  const size_t size_;
  std::atomic<bool> freed_ = false;
  std::atomic<bool> exported_ = false;
  ForkMark mark_;
};

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
