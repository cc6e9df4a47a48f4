// What a forked child must not inherit. The child of fork() gets copies of our sockets, which would
// keep connections open after we died, and copies of objects whose threads do not exist there. So
// the child closes every registered descriptor and counts a generation up; objects compare theirs
// and do nothing. No other code of ours runs in the child. exec'd children are served by
// close-on-exec.
//
// The list is global because fork handlers get no argument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace ringdist {

// Changes in a forked child, and only there.
uint64_t process_generation();

// Kept by an object that must know whether it was made by the parent of this process.
class ForkMark {
 public:
  bool forked() const { return made_ != process_generation(); }

 private:
  uint64_t made_ = process_generation();
};

namespace fork_guard {

// Holds fork() back, so that no child gets a descriptor that is open but not yet registered.
class Hold {
 public:
  // There is room on the list for so many more, or it throws: a descriptor that is open already
  // could not be given up for want of memory, since that takes the list's lock as well.
  explicit Hold(size_t room = 0);

 private:
  std::unique_lock<std::mutex> lock_;
};

// For which the Hold has made room.
void add(const Hold&, int fd) noexcept;
void remove(const Hold&, int fd) noexcept;
// How many are on the list: all that this library has open.
size_t count(const Hold&) noexcept;

}  // namespace fork_guard
}  // namespace ringdist
