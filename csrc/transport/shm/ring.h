// Both ends of a ring of slots in shared memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "transport/shm/segment_layout.h"

namespace ringdist::shm {

// The reading end of a ring (ring_writer.h).
template <uint64_t slots>
class RingReader {
 public:
  uint64_t consumed() const { return consumed_; }
  // What the writer says: how far it has come, and that nothing follows.
  template <typename Published>
  static uint64_t published(const Published& told) {
    return told.load() & ~kLast;
  }
  template <typename Published>
  static bool writer_has_ended(const Published& told) {
    return (told.load() & kLast) != 0;
  }
  // Of how far it has come. The second: it cannot be true.
  bool has_message(uint64_t published) const { return published != consumed_; }
  bool is_absurd(uint64_t published) const { return published - consumed_ > slots; }

  // Where the next message lies, if there is one.
  size_t slot() const { return consumed_ % slots; }
  // It was read. True: the writer sleeps until it has room, ring the doorbell.
  template <typename Consumed, typename Asleep>
  bool consume(Consumed& consumed, const Asleep& writer) {
    consumed.store(++consumed_);
    return writer.load() == SleepState::kForRoom;
  }
  // Nothing more is read: all slots are the writer's. It is to be woken in any case.
  template <typename Consumed>
  void end(Consumed& consumed) const {
    consumed.store(consumed_ | kLast);
  }

 private:
  uint64_t consumed_ = 0;
};

// The writing end of a ring: which slot is whose. The writer fills a slot and publishes it; the
// reader consumes it; then the writer takes it back. The signs lie in memory that both see, each
// with one writer; what is here is the writer's alone.
template <uint64_t slots>
class RingWriter {
 public:
  uint64_t published() const { return published_; }
  uint64_t reclaimed() const { return reclaimed_; }
  bool empty() const { return published_ == reclaimed_; }
  bool full() const { return published_ - reclaimed_ == slots; }

  // What the next message fills, if the ring is not full.
  size_t slot() const { return published_ % slots; }
  // It is filled. True: its reader sleeps, ring the doorbell.
  template <typename Published, typename Asleep>
  bool publish(Published& published, const Asleep& reader) {
    published.store(++published_);
    return reader.load() != SleepState::kAwake;
  }

  // Nothing follows. The reader is to be woken in any case.
  template <typename Published>
  void end(Published& published) const {
    published.store(published_ | kLast);
  }

  // How far the reader has come, held within what can be true: it is another process's memory.
  template <typename Consumed>
  uint64_t consumed(const Consumed& told) const {
    return std::clamp(told.load() & ~kLast, reclaimed_, published_);
  }
  // It reads nothing more: all slots are ours.
  template <typename Consumed>
  static bool reader_has_ended(const Consumed& told) {
    return (told.load() & kLast) != 0;
  }
  // The oldest slot, which the reader has consumed, is ours again.
  size_t reclaim() { return reclaimed_++ % slots; }

 private:
  uint64_t published_ = 0;
  uint64_t reclaimed_ = 0;
};

}  // namespace ringdist::shm
