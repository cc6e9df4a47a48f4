// Both ends of a ring of slots in shared memory. RingReader and RingWriter hold only their own
// end's counters; the shared words are passed to each call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "transport/shm/segment_layout.h"

namespace ringdist::shm {

// The reading end of a ring. Not thread-safe; `slots` is the number of slots.
template <uint64_t slots>
class RingReader {
 public:
  uint64_t consumed() const { return consumed_; }
  // `told` is the shared word of the writer. published() returns its count without the kLast bit,
  // and writer_has_ended() returns true if that bit is set.
  template <typename Published>
  static uint64_t published(const Published& told) {
    return told.load() & ~kLast;
  }
  template <typename Published>
  static bool writer_has_ended(const Published& told) {
    return (told.load() & kLast) != 0;
  }
  // Both take the published count. is_absurd() returns true if the count cannot be true, so that
  // the peer's memory is not trusted. The difference is unsigned, so a count that went back is
  // absurd as well.
  bool has_message(uint64_t published) const { return published != consumed_; }
  bool is_absurd(uint64_t published) const { return published - consumed_ > slots; }

  // Returns the index of the next message's slot, if there is one.
  size_t slot() const { return consumed_ % slots; }
  // Publishes that the message was read. Returns true if the writer sleeps until there is room, so
  // that its doorbell must be rung. The store comes before the load. Otherwise a writer that goes
  // to sleep in between would not be woken (base/dekker_word.h).
  template <typename Consumed, typename Asleep>
  bool consume(Consumed& consumed, const Asleep& writer) {
    consumed.store(++consumed_);
    return writer.load() == SleepState::kForRoom;
  }
  // Publishes that nothing more is read, which returns all slots to the writer. The writer must be
  // woken in any case.
  template <typename Consumed>
  void end(Consumed& consumed) const {
    consumed.store(consumed_ | kLast);
  }

 private:
  uint64_t consumed_ = 0;
};

// The writing end of a ring. The writer fills a slot and publishes it. After the reader has
// consumed it, the writer reclaims it. Each shared word has one writer, and the members here are
// private to this end.
template <uint64_t slots>
class RingWriter {
 public:
  uint64_t published() const { return published_; }
  uint64_t reclaimed() const { return reclaimed_; }
  bool empty() const { return published_ == reclaimed_; }
  bool full() const { return published_ - reclaimed_ == slots; }

  // Returns the index of the slot for the next message, if the ring is not full.
  size_t slot() const { return published_ % slots; }
  // Publishes the filled slot. Returns true if the reader sleeps, so that its doorbell must be
  // rung. The store comes before the load, as in RingReader::consume().
  template <typename Published, typename Asleep>
  bool publish(Published& published, const Asleep& reader) {
    published.store(++published_);
    return reader.load() != SleepState::kAwake;
  }

  // Publishes that nothing follows. The reader must be woken in any case.
  template <typename Published>
  void end(Published& published) const {
    published.store(published_ | kLast);
  }

  // Returns the reader's count, clamped to possible values because it lies in another process's
  // memory.
  template <typename Consumed>
  uint64_t consumed(const Consumed& told) const {
    return std::clamp(told.load() & ~kLast, reclaimed_, published_);
  }
  // Returns true if the reader has published that it reads nothing more. All slots belong to the
  // writer then.
  template <typename Consumed>
  static bool reader_has_ended(const Consumed& told) {
    return (told.load() & kLast) != 0;
  }
  // Reclaims the oldest slot, which the reader must have consumed, and returns its index.
  size_t reclaim() { return reclaimed_++ % slots; }

 private:
  uint64_t published_ = 0;
  uint64_t reclaimed_ = 0;
};

}  // namespace ringdist::shm
