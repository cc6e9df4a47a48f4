// Fork safety. A child of fork() gets copies of all sockets, which would keep connections open
// after the death of the parent. It also gets copies of objects, but not their threads. So the
// child closes every registered descriptor and increments the process generation. Objects compare
// generations and do nothing in a child. The only other fork handlers of this library are those of
// SharedBlockRegistry. The order of the two is not defined. Close-on-exec covers programs that are
// exec'd.
//
// The list of descriptors is global, because fork handlers get no argument. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace ringdist {

// Returns the generation of this process. It changes in a forked child, and only there.
uint64_t process_generation();

// Member of an object that needs to detect that it was made by the parent of this process.
class ForkMark {
 public:
  // Returns true in a child that was forked after the mark was made.
  bool forked() const { return made_ != process_generation(); }

 private:
  uint64_t made_ = process_generation();
};

namespace fork_guard {

// Holds fork() back while it exists, so that no child gets a descriptor that is open but not yet
// registered. It holds a lock that is not recursive. So its thread must not fork, make another Hold
// or close an Fd meanwhile.
class Hold {
 public:
  // Reserves space for `room` more descriptors, or throws std::bad_alloc. The space must exist
  // before a descriptor is opened: closing a descriptor takes the list's lock, which the caller
  // holds.
  explicit Hold(size_t room = 0);

 private:
  std::unique_lock<std::mutex> lock_;
};

// Registers a descriptor. The Hold must have reserved space for it.
void add(const Hold&, int fd) noexcept;
// Removes a descriptor from the list; its owner closes it.
void remove(const Hold&, int fd) noexcept;
// Returns the number of registered descriptors, i.e. all that this library has open.
size_t count(const Hold&) noexcept;

}  // namespace fork_guard
}  // namespace ringdist
