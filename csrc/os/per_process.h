// State that each process has of its own, also where one was forked from another.
#pragma once

#include <atomic>

#include "os/fork_guard.h"

namespace ringdist {

// One T for each process, made when it is first needed and never destroyed. A forked child has its
// own: the parent's may have been locked, or half changed, by a thread that does not exist there.
template <typename T>
class PerProcess {
 public:
  T& get() {
    Made* now = made_.load(std::memory_order_acquire);
    while (now == nullptr || now->mark.forked()) {
      auto* made = new Made;
      if (made_.compare_exchange_strong(now, made)) return made->value;
      delete made;
    }
    return now->value;
  }
  // Null if this process has none. Signal handlers may call it.
  T* find() {
    Made* now = made_.load(std::memory_order_acquire);
    return now == nullptr || now->mark.forked() ? nullptr : &now->value;
  }

 private:
  struct Made {
    T value;
    ForkMark mark;
  };
  std::atomic<Made*> made_{nullptr};
};

}  // namespace ringdist
