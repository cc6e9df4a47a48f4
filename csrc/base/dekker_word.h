// A word by which two that may sleep, threads or processes, do not miss each other. Each shows its
// own and only then looks at the other's: who goes to sleep says so and looks for work once more;
// who brings work says so and looks whether anybody sleeps. Both in one order for all, so that at
// least one of the two sees the other. What was written before a sign was shown is there for
// whoever has seen it.
//
// tests/cpp/base/dekker_word_test.cc tries all that memory may make of it; Atomic and Orders are
// for that.
#pragma once

#include <atomic>

namespace ringdist {

struct SeqCstOrders {
  static constexpr std::memory_order kStore = std::memory_order_seq_cst;
  static constexpr std::memory_order kLoad = std::memory_order_seq_cst;
};

template <typename T, typename Orders = SeqCstOrders,
          template <typename> typename Atomic = std::atomic>
class DekkerWord {
 public:
  void store(T value) { word_.store(value, Orders::kStore); }
  T load() const { return word_.load(Orders::kLoad); }
  // Where nobody who still sees the former is misled: after a sleep, before a beginning.
  void store_relaxed(T value) { word_.store(value, std::memory_order_relaxed); }
  // Shows that we sleep, then asks whether there is work all the same. True: block.
  template <typename Work>
  bool prepare_sleep(T asleep, Work&& there_is_work) {
    store(asleep);
    return !there_is_work();
  }

 private:
  Atomic<T> word_;
};

}  // namespace ringdist
