// The reading end of a ring (ring_writer.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/shm/segment_layout.h"

namespace ringdist::shm {

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

}  // namespace ringdist::shm
