// The shm segment that this Context writes, and the chunks in it. Peers map it for reading.
// Requires the lane's progress lock.
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

// Allocates the chunks of a segment, which hold payloads. One chunk can be published to several
// peers and is free again when the slowest has consumed it. The chunk that was freed last is taken
// first, because it is likely to be in the caches. Small payloads get small chunks while there are
// any.
class ChunkPool {
 public:
  using Id = uint32_t;

  // `memory` is the whole segment and `file` the file that it is mapped from.
  ChunkPool(const Fd& file, Bytes memory) : file_(file), memory_(memory) {}

  // Returns a chunk for `bytes` with one holder. Returns nothing while all are in use, or if the
  // system has no memory; error() has the cause then. `reserved`: the caller's channel holds no
  // chunk, so it may use the reserve of kReservedChunks.
  std::optional<Id> take(size_t bytes, bool reserved);
  // Adds a holder.
  void hold(Id chunk) { ++class_of(chunk).holders[index(chunk)]; }
  // Removes a holder; the last one frees the chunk.
  void release(Id chunk);

  // Returns the chunk's memory.
  Bytes bytes(Id chunk) const { return memory_.subspan(offset(chunk), class_of(chunk).bytes); }
  // Returns the chunk's offset from the beginning of the segment, in bytes.
  uint64_t offset(Id chunk) const;
  // Returns the chunk that begins at `data`.
  Id find(const std::byte* data) const;
  bool is_large(Id chunk) const { return chunk < kFirstSmall; }
  // Returns the error of the last take(), if the system had no memory.
  const Error& error() const { return error_; }

 private:
  // The chunks of one size.
  struct Class {
    size_t at;  // offset of the first one in the segment
    size_t bytes;
    size_t usual;  // limit of chunks in use
    size_t most;   // the same for reserved requests
    size_t in_use = 0;
    std::vector<uint32_t> holders = {};  // per chunk that was ever used
    std::vector<uint32_t> free = {};     // indices of free chunks, the one freed last at the end
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

// The segment, its doorbell, and the allocation of its rings, counters and chunks. One per
// ShmTransport.
class OwnShmSegment {
 public:
  // Creates the memory, sealed against writing by others, and the doorbell. Returns kSystem if a
  // descriptor or memory is missing.
  static Result<std::unique_ptr<OwnShmSegment>> create();

  const Fd& file() const { return file_; }
  Doorbell& doorbell() { return doorbell_; }  // wakes this Context
  ControlBlock& front() { return segment_->front; }
  Ring& ring(uint32_t index) { return segment_->rings[index]; }
  ChunkPool& chunks() { return chunks_; }

  // Allocates a ring, or a counter in ControlBlock::consumed; it starts at zero. If all are in use,
  // take_ring() returns kSystem and take_counter() nothing. take_ring() also returns kSystem if the
  // system has no memory for the ring.
  Result<uint32_t> take_ring();
  std::optional<uint32_t> take_counter();
  void give_back_ring(uint32_t index) { free_rings_.push_back(index); }
  void give_back_counter(uint32_t index) { free_counters_.push_back(index); }

  // Handshakes under way, each with two descriptors in flight. The kernel limits the descriptors in
  // flight of all processes of a user together, so one process has few handshakes at a time.
  bool may_greet() const { return greetings_ < kMostGreetings; }
  void begin_greeting() { ++greetings_; }
  void end_greeting() { --greetings_; }

 private:
  static constexpr int kMostGreetings = 4;  // 128 processes have at most 1024 descriptors in flight

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
