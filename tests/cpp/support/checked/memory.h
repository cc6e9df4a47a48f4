// Replacements for atomics, plain variables and doorbells in code that explore.h checks. Each
// access becomes an Action that the checker performs, one at a time. The types may only be used
// inside the checked threads, and their values begin at zero.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

namespace ringdist::checked {

enum class Kind : uint8_t { kLoad, kStore, kRead, kWrite, kRing, kWait };

struct Action {
  Kind kind;
  const void* where;
  std::memory_order order = std::memory_order_relaxed;  // order of a load or a store
  uint64_t value = 0;                                   // value to store or to write
};

std::string name_of(Kind kind);
std::string name_of(std::memory_order order);

// An error of the checked program, such as a race. Throwing it ends the exploration.
struct Wrong {
  std::string what;
};

// Runs one thread from its beginning, answers its actions from `past` and stops it at the first
// action beyond. This works because a thread is a function of the results of its actions. Only one
// Replay per system thread may exist at a time.
class Replay {
 public:
  struct Stop {  // exception that leaves the checked thread
    Action action;
  };

  explicit Replay(std::span<const uint64_t> past);
  ~Replay();
  Replay(const Replay&) = delete;

  // Performs an action of the thread that is being replayed, and returns its result.
  static uint64_t perform(const Action& action);

 private:
  std::span<const uint64_t> past_;
};

// Replacement for std::atomic.
template <typename T>
class Atomic {
 public:
  void store(T value, std::memory_order order) {
    Replay::perform({Kind::kStore, this, order, static_cast<uint64_t>(value)});
  }
  T load(std::memory_order order) const {
    return static_cast<T>(Replay::perform({Kind::kLoad, this, order}));
  }

 private:
  T place_{};
};

// A variable that is not atomic. Two concurrent accesses, at least one of them a write, are a
// race.
class Plain {
 public:
  void write(uint64_t value) {
    Replay::perform({Kind::kWrite, this, std::memory_order_relaxed, value});
  }
  uint64_t read() const { return Replay::perform({Kind::kRead, this}); }

 private:
  char place_ = 0;
};

// Doorbell with the semantics of an eventfd: a wait ends if the doorbell was rung after the
// previous wait. It orders no other memory accesses, so the checked code must not rely on that.
class FakeDoorbell {
 public:
  void ring() { Replay::perform({Kind::kRing, this}); }
  void wait() { Replay::perform({Kind::kWait, this}); }

 private:
  char place_ = 0;
};

inline void expect(bool holds, const char* what) {
  if (!holds) throw Wrong{what};
}

}  // namespace ringdist::checked
