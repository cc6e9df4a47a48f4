// Turns SIGUSR1 into the signal of an eventfd, so that a stuck process can print its status on
// request.
#pragma once

#include <memory>

#include "os/epoll.h"

namespace ringdist {

// Signals an eventfd on SIGUSR1 while it exists. The handler is installed only if the signal has
// its default action, and is removed with the last watch. Signal handlers get no argument, hence a
// small global table. A forked child gets the default action until it has watches of its own. Any
// thread.
class SignalWatch {
 public:
  // Makes a watch. `target` must outlive it. If the signal has another handler or the table is
  // full, it has no effect.
  static std::unique_ptr<SignalWatch> on_sigusr1(const EventFd& target);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  explicit SignalWatch(int slot) : slot_(slot) {}

  int slot_;
  ForkMark mark_;
};

}  // namespace ringdist
