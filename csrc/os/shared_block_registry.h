// Memory blocks of this process that other processes may read in place: the block and the registry
// of all blocks. The registry maps addresses to blocks. It is global, because code that frees
// memory passes only its address. Any thread. A forked child can continue to use, free and make
// blocks.
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

// Memory block that other processes of the host may map for reading: a file without a name, sealed.
// Unlike a Mapping it also exists in a forked child, and the parent sees what the child writes, as
// with torch's share_memory_(). The owner of the memory makes and frees it; other holders need its
// file only. Any thread.
class SharedBlock {
 public:
  // Maps a file that create_memory() made and that has memory allocated. Error: kSystem.
  static Result<std::shared_ptr<SharedBlock>> map(Fd file, size_t bytes);
  ~SharedBlock() { free(); }
  SharedBlock(const SharedBlock&) = delete;
  SharedBlock& operator=(const SharedBlock&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  // Returns true if all of `range` lies in the block.
  bool contains(ConstBytes range) const;
  const Fd& file() const { return file_; }

  // Unmaps the block in this process. Its memory lives on while other processes map it or hold the
  // file.
  void free();
  bool freed() const { return freed_.load(std::memory_order_acquire); }
  // Marks that another process has the file, so that the free of the block must be reported.
  void mark_exported() { exported_.store(true, std::memory_order_relaxed); }
  bool is_exported() const { return exported_.load(std::memory_order_relaxed); }
  // Returns true if this process is a child of the one that made the block. The file is closed in
  // the child.
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

// All SharedBlocks of this process. Freed blocks are reused while a sharing region is open.
class SharedBlockRegistry {
 public:
  static constexpr size_t kMost = 256;                  // blocks; each holds a descriptor
  static constexpr size_t kMostIdle = size_t{1} << 30;  // bytes of freed blocks that are kept
  // Returns the registry of this process. It is never destroyed.
  static SharedBlockRegistry& of_process();

  // Open and close a sharing region of the calling thread. While any thread has one open, freed
  // blocks are kept for the next allocation of their size. A fresh block costs zeroing and page
  // faults, here and in its readers. Regions may overlap and nest. A forked child starts outside of
  // any region.
  void enter_region();
  void leave_region();
  // Returns true if the calling thread is in a region.
  static bool in_region();

  // Returns page-aligned memory. Returns null if no more blocks can be made, and logs that once;
  // the caller then uses other memory. Error: kSystem, if the machine lacks the memory. A block
  // beyond that would get processes killed. The size is rounded up to whole pages; 0 bytes are not
  // allowed.
  Result<std::byte*> allocate(size_t bytes);
  // Frees a block. Returns false if `data` is not the start of a block in use.
  bool free(std::byte* data);

  // Returns the block of this process (not inherited from its parent) that contains all of `range`,
  // or null. The range must not be freed during the call.
  std::shared_ptr<SharedBlock> find(ConstBytes range) const;

  // Count how many exported blocks were freed, and report it. Each free rings the doorbells of all
  // watchers. A doorbell must live until unwatch().
  uint64_t frees() const { return frees_.load(std::memory_order_acquire); }
  void watch(const Doorbell& doorbell);
  void unwatch(const Doorbell& doorbell);

  // Statistics for users.
  struct Figures {
    uint64_t blocks;  // in use
    uint64_t bytes;
    uint64_t bytes_read;  // read in place by other processes, since the process began
  };
  Figures figures() const;
  void count_read(size_t bytes) { bytes_read_.fetch_add(bytes, std::memory_order_relaxed); }

 private:
  struct Tracked {
    std::shared_ptr<SharedBlock> block;
    uint64_t forks;  // forks_ when the block was handed out; a later child also has it
    bool idle = false;
  };
  using RetiredBlocks = std::vector<std::shared_ptr<SharedBlock>>;

  SharedBlockRegistry() = default;
  static SharedBlockRegistry& make();
  void after_fork_in_child();
  // Logs `cause` once and returns null.
  Result<std::byte*> without(const Error& cause);
  // Returns an error if `bytes` would leave less than 1/16 of the available memory. Drops idle
  // blocks first.
  Error require_memory(size_t bytes);
  // These require mutex_.
  std::byte* reuse(size_t bytes);
  void make_idle(std::byte* data, Tracked& tracked, RetiredBlocks& retired);
  void drop_oldest(RetiredBlocks& retired);
  // Unmaps the blocks and reports exported ones to the watchers. It takes mutex_, so the caller
  // must not hold it.
  void retire(const RetiredBlocks& retired);

  mutable std::mutex mutex_;  // leaf lock; held during fork()
  std::map<std::byte*, Tracked> blocks_ RINGDIST_GUARDED_BY(mutex_);
  std::vector<std::byte*> idle_
      RINGDIST_GUARDED_BY(mutex_);  // addresses of idle blocks, the oldest first
  size_t idle_bytes_ RINGDIST_GUARDED_BY(mutex_) = 0;
  int regions_ RINGDIST_GUARDED_BY(mutex_) = 0;
  uint64_t forks_ RINGDIST_GUARDED_BY(mutex_) = 0;  // number of forks of this process so far
  std::vector<const Doorbell*> watchers_ RINGDIST_GUARDED_BY(mutex_);
  bool warned_ RINGDIST_GUARDED_BY(mutex_) = false;
  std::atomic<size_t> count_ = 0;  // size of blocks_, readable without the lock
  std::atomic<uint64_t> frees_ = 0;
  std::atomic<uint64_t> bytes_read_ = 0;
};

}  // namespace ringdist
