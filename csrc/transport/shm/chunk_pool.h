// The chunks of a Context's segment: memory for payloads. A chunk goes to all peers that it was
// published to at once, and is free when the slowest has consumed it. What was free last is taken
// first, because the caches still know it. With the lane's token held.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/buffers.h"
#include "base/error.h"
#include "os/fd.h"
#include "transport/shm/segment_layout.h"

namespace ringdist::shm {

class ChunkPool {
 public:
  using Id = uint32_t;

  // `memory` is the whole segment, `file` what it is mapped from.
  ChunkPool(const Fd& file, Bytes memory) : file_(file), memory_(memory) {}

  // A chunk for `bytes`, held once; nothing while all are in use, or where the system has no
  // memory: then error() says so. `reserved`: the caller's link holds none, and gets one all the
  // same.
  std::optional<Id> take(size_t bytes, bool reserved);
  void hold(Id chunk) { ++class_of(chunk).holders[index(chunk)]; }
  void release(Id chunk);

  Bytes bytes(Id chunk) const { return memory_.subspan(offset(chunk), class_of(chunk).bytes); }
  uint64_t offset(Id chunk) const;
  // The chunk that this memory is the beginning of.
  Id find(const std::byte* data) const;
  bool is_large(Id chunk) const { return chunk < kFirstSmall; }
  const Error& error() const { return error_; }

 private:
  struct Class {
    size_t at;
    size_t bytes;
    size_t usual;  // how many may be in use
    size_t most;   // the same where one is reserved
    size_t in_use = 0;
    std::vector<uint32_t> holders = {};  // of those that were ever used
    std::vector<uint32_t> free = {};
  };
  static constexpr Id kFirstSmall = kLargeChunks + kReservedChunks;

  Class& class_of(Id chunk) { return is_large(chunk) ? large_ : small_; }
  const Class& class_of(Id chunk) const { return is_large(chunk) ? large_ : small_; }
  size_t index(Id chunk) const { return is_large(chunk) ? chunk : chunk - kFirstSmall; }

  const Fd& file_;
  const Bytes memory_;
  Class large_{kLargeAt, kLargeChunk, kLargeChunks, kLargeChunks + kReservedChunks};
  Class small_{kChunksAt, kSmallChunk, kSmallChunks, kSmallChunks};
  Error error_;
};

}  // namespace ringdist::shm
