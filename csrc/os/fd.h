// Owns a file descriptor. Made by open(), which runs the system call with fork held back and
// registers the result: a forked child closes it, and an Fd copied into a child does nothing there.
// Callers pass the close-on-exec flag of their call. One thread at a time, as with any value.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "os/fork_guard.h"

namespace ringdist {

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

  // `call` must not block; it returns a new descriptor, or a negative number and sets errno. It is
  // not called where there is no memory.
  template <typename Call>
  static Fd open(Call&& call) {
    const fork_guard::Hold hold(1);
    return adopt(hold, call());
  }
  // A descriptor that appeared while fork was held back, with room for it; nothing if negative.
  static Fd adopt(const fork_guard::Hold& hold, int fd) noexcept {
    Fd out;
    out.fd_ = fd;
    if (fd >= 0) fork_guard::add(hold, fd);
    return out;
  }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
  ForkMark mark_;
};

// How many file descriptors a process has left. Any thread.

// kSystem, with what to do about it, unless `count` can be open at once for the use that `what`
// names, of which `had` are open already.
Error require_descriptors(size_t count, std::string_view what, size_t had = 0);

}  // namespace ringdist
