// Memory that runs out where a test wants it to: the nth allocation of this thread throws
// std::bad_alloc. One file of the test's program includes support/replaced_new.h, too.
#pragma once

#include <cstddef>
#include <utility>

namespace ringdist::test {

// Of this thread's allocations the one that fails: 1 is the next, 0 none.
inline constinit thread_local size_t failing_allocation = 0;

// True if the allocation that is about to be made is that one.
inline bool allocation_fails() noexcept {
  return failing_allocation != 0 && --failing_allocation == 0;
}

// While it lives. Its count goes on where the last one's stopped: `left` is where to count from,
// and what is left of it; 0 once an allocation has failed.
class FailingAllocations {
 public:
  explicit FailingAllocations(size_t& left) : left_(left) {
    before_ = std::exchange(failing_allocation, left);
  }
  ~FailingAllocations() { left_ = std::exchange(failing_allocation, before_); }
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;

 private:
  size_t& left_;
  size_t before_ = 0;
};

}  // namespace ringdist::test
