// Simulates memory exhaustion: chosen allocations of the calling thread throw std::bad_alloc. One
// file of each test program must also include support/replaced_new.h, which replaces operator new.
#pragma once

#include <cstddef>
#include <utility>

namespace ringdist::test {

struct Failures {
  size_t first = 0;  // number of the first allocation to fail: 1 is the next one, 0 none
  size_t count = 1;  // number of consecutive allocations to fail

  bool over() const { return first == 0; }
};

inline constinit thread_local Failures failing_now{};

// Counts an allocation that is about to be made, and returns true if it must fail.
inline bool allocation_fails() noexcept {
  Failures& now = failing_now;
  if (now.over() || --now.first > 0) return false;
  if (--now.count > 0) now.first = 1;
  return true;
}

// While this object exists, the allocations described by `left` fail. The destructor writes the
// part that has not failed yet back to `left`. It affects the thread that created it only.
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
