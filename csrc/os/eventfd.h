// Wakes a thread that waits in poll or epoll. signal() may come from any thread or signal handler.
#pragma once

#include "base/error.h"
#include "os/fd.h"

namespace ringdist {

class EventFd {
 public:
  static Result<EventFd> create();

  void signal() const;
  // Forgets all signals so far; true if there was one.
  bool drain() const;
  int get() const { return fd_.get(); }

 private:
  explicit EventFd(Fd fd) : fd_(std::move(fd)) {}

  Fd fd_;
};

}  // namespace ringdist
