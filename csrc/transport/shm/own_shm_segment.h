// The segment that this Context writes. With the lane's token held.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/buffers.h"
#include "base/error.h"
#include "os/doorbell.h"
#include "os/fd.h"
#include "os/memfd.h"
#include "transport/shm/segment_layout.h"

namespace ringdist::shm {

// The chunks of a Context's segment: memory for payloads. A chunk goes to all peers that it was
// published to at once, and is free when the slowest has consumed it. What was free last is taken
// first, because the caches still know it. With the lane's token held.
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

class OwnShmSegment {
 public:
  static Result<std::unique_ptr<OwnShmSegment>> create();

  const Fd& file() const { return file_; }
  Doorbell& doorbell() { return doorbell_; }  // wakes this Context
  ControlBlock& front() { return segment_->front; }
  Ring& ring(uint32_t index) { return segment_->rings[index]; }
  ChunkPool& chunks() { return chunks_; }

  // Indices of a ring and of a counter in ControlBlock::consumed, at zero. When all are in use:
  // kSystem, or nothing.
  Result<uint32_t> take_ring();
  std::optional<uint32_t> take_counter();
  void give_back_ring(uint32_t index) { free_rings_.push_back(index); }
  void give_back_counter(uint32_t index) { free_counters_.push_back(index); }

  // Greetings on their way, each with two descriptors in flight. The kernel bounds those of all
  // processes of a user together, so one process greets a few peers at a time.
  bool may_greet() const { return greetings_ < kMostGreetings; }
  void begin_greeting() { ++greetings_; }
  void end_greeting() { --greetings_; }

 private:
  static constexpr int kMostGreetings = 4;  // so 128 processes stay below 1024 descriptors

  OwnShmSegment(Fd file, Doorbell doorbell, Mapping mapping);

  Fd file_;
  Doorbell doorbell_;
  Mapping mapping_;
  ShmSegment* segment_;
  ChunkPool chunks_;
  std::vector<uint32_t> free_rings_;
  std::vector<uint32_t> free_counters_;
  int greetings_ = 0;
};

}  // namespace ringdist::shm
