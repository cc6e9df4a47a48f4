// Memory and doorbells for code that is checked in every order (explore.h): what it does to them
// goes to the checker, one action at a time. Used within its threads only; begins at zero.
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
  std::memory_order order = std::memory_order_relaxed;  // of a load or a store
  uint64_t value = 0;                                   // to store, to write
};

std::string name_of(Kind kind);
std::string name_of(std::memory_order order);

// What a thread must not do, or see. Ends the exploration.
struct Wrong {
  std::string what;
};

// One thread, run from its beginning up to the action behind those of its past, where it stops. A
// thread is a function of what its actions have returned.
class Replay {
 public:
  struct Stop {  // thrown through the thread
    Action action;
  };

  explicit Replay(std::span<const uint64_t> past);
  ~Replay();
  Replay(const Replay&) = delete;

  // Of the thread that is being run.
  static uint64_t perform(const Action& action);

 private:
  std::span<const uint64_t> past_;
};

// In place of std::atomic.
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

// What is not atomic: two that use it at a time, one of them writing, are a race.
class Plain {
 public:
  void write(uint64_t value) {
    Replay::perform({Kind::kWrite, this, std::memory_order_relaxed, value});
  }
  uint64_t read() const { return Replay::perform({Kind::kRead, this}); }

 private:
  char place_ = 0;
};

// As an eventfd: a wait ends when it was rung since the last one. It orders nothing else: what is
// seen after it must not depend on it.
class Bell {
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
