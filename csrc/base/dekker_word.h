// Word for sleep and wake-up handshakes without lost wake-ups (Dekker's algorithm). Each of two
// sides, threads or processes, writes its own word first and then reads the word of the other side.
// The sleeper announces its sleep, then looks for work once more. The waker publishes work, then
// looks for a sleeper. Both use sequentially consistent order, so at least one of the two sees the
// other. Memory written before a store() is visible after a load() that returns its value.
//
// tests/cpp/base/dekker_word_test.cc tries all interleavings and reorderings that the memory model
// permits. The template parameters Orders and Atomic exist for tests: that one, and those of the
// shm transport, which names its orders in transport/shm/memory_orders.h.
#pragma once

#include <atomic>

namespace ringdist {

// Memory orders of store() and load(). Tests replace them by weaker ones and expect lost wake-ups.
struct SeqCstOrders {
  static constexpr std::memory_order kStore = std::memory_order_seq_cst;
  static constexpr std::memory_order kLoad = std::memory_order_seq_cst;
};

// One side's word: an atomic T that one side writes and the other side reads. Lock-free where
// std::atomic<T> is.
template <typename T, typename Orders = SeqCstOrders,
          template <typename> typename Atomic = std::atomic>
class DekkerWord {
 public:
  void store(T value) { word_.store(value, Orders::kStore); }
  T load() const { return word_.load(Orders::kLoad); }
  // Stores without ordering. Use it where a reader that still sees the old value does no harm:
  // after a sleep, or before the other side starts.
  void store_relaxed(T value) { word_.store(value, std::memory_order_relaxed); }
  // Announces the sleep with the value `asleep`, then calls `there_is_work`. Returns true if there
  // is none: the caller may block. If it returns false, the caller must not block and should store
  // its awake value.
  template <typename Work>
  bool prepare_sleep(T asleep, Work&& there_is_work) {
    store(asleep);
    return !there_is_work();
  }

 private:
  Atomic<T> word_;
};

}  // namespace ringdist
