// The segment that this Context writes. With the lane's token held.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "os/doorbell.h"
#include "os/memfd.h"
#include "transport/shm/chunk_pool.h"
#include "transport/shm/segment_layout.h"

namespace ringdist::shm {

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
