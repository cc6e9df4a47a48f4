// Owner of a file descriptor, and a check of the descriptor limit.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "os/fork_guard.h"

namespace ringdist {

// Owns a file descriptor and closes it. open() makes one: it runs the system call while fork() is
// held back and registers the result. A forked child closes the descriptor, and an Fd that was
// copied into the child does nothing there. Callers pass the close-on-exec flag in their system
// call. One thread at a time, as with any value.
class Fd {
 public:
  Fd() = default;
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), mark_(other.mark_) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
      mark_ = other.mark_;
    }
    return *this;
  }
  ~Fd() { reset(); }

  // Runs `call` and owns its result. `call` returns a new descriptor, or a negative number and sets
  // errno. It must not block. If it fails, errno still has its error afterwards. If there is no
  // memory, this throws before it runs `call`.
  template <typename Call>
  static Fd open(Call&& call) {
    const fork_guard::Hold hold(1);
    return adopt(hold, call());
  }
  // Owns a descriptor that was created while `hold` was held, with room for it. A negative number
  // gives an empty Fd.
  static Fd adopt(const fork_guard::Hold& hold, int fd) noexcept {
    Fd out;
    out.fd_ = fd;
    if (fd >= 0) fork_guard::add(hold, fd);
    return out;
  }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  // Closes the descriptor, if there is one and this is not a forked child. It takes the lock of the
  // fork guard, so the calling thread must not have a Hold.
  void reset();

 private:
  int fd_ = -1;
  ForkMark mark_;
};

// Returns a kSystem error with advice unless `count` descriptors can be open at once. `what` names
// their use in the message. `had` of them are already open. If the limit or the number of open
// descriptors cannot be read, it returns success. Any thread.
Error require_descriptors(size_t count, std::string_view what, size_t had = 0);

}  // namespace ringdist
