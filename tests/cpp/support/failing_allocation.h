// Memory that runs out where a test wants it to: an allocation of this thread, and some after it,
// throw std::bad_alloc. One file of the test's program includes support/replaced_new.h, too.
#pragma once

#include <cstddef>
#include <utility>

namespace ringdist::test {

struct Failures {
  size_t first = 0;  // of the allocations to come: 1 is the next, 0 none
  size_t count = 1;  // in a row

  bool over() const { return first == 0; }
};

inline constinit thread_local Failures failing_now{};

// Whether the allocation that is about to be made is to fail.
inline bool allocation_fails() noexcept {
  Failures& now = failing_now;
  if (now.over() || --now.first > 0) return false;
  if (--now.count > 0) now.first = 1;
  return true;
}

// While it lives: those that are left, and then what is left of them.
class FailingAllocations {
 public:
  explicit FailingAllocations(Failures& left) : left_(left) {
    before_ = std::exchange(failing_now, left);
  }
  ~FailingAllocations() { left_ = std::exchange(failing_now, before_); }
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;

 private:
  Failures& left_;
  Failures before_;
};

}  // namespace ringdist::test
