// State that exists once per process, also after a fork.
#pragma once

#include <atomic>

#include "os/fork_guard.h"

namespace ringdist {

// Holds one T per process. It is made when it is first needed and is never destroyed. A forked
// child gets its own, because another thread may have locked or half changed the parent's at the
// time of the fork. Any thread. The parent's T is leaked in the child.
template <typename T>
class PerProcess {
 public:
  // Returns this process' T and makes it if there is none. If threads race, one T wins and the
  // others are deleted.
  T& get() {
    Made* now = made_.load(std::memory_order_acquire);
    while (now == nullptr || now->mark.forked()) {
      auto* made = new Made;
      if (made_.compare_exchange_strong(now, made)) return made->value;
      delete made;
    }
    return now->value;
  }
  // Returns null if this process has none. Signal handlers may call it.
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
