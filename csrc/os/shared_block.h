// A block of memory that other processes of the host may map for reading: a file without a name,
// sealed. Unlike a Mapping it is there in a forked child as well, and what the child writes its
// parent sees, as with torch's share_memory_().
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "base/buffers.h"
#include "base/error.h"
#include "os/fd.h"

namespace ringdist {

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

}  // namespace ringdist
