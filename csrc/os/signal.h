// Turns SIGUSR1 into an eventfd's signal, so that a stuck process can be asked what it is doing.
#pragma once

#include <memory>

#include "os/epoll.h"

namespace ringdist {

// While one exists, its eventfd is signalled on SIGUSR1. The handler is installed only where nobody
// else handles the signal, and removed with the last one. Handlers get no argument, hence a small
// global table. A forked child gets the default action, until it has watches
// of its own. Any thread.
class SignalWatch {
 public:
  // `target` must outlive it. Nothing happens where the signal is already taken or the table full.
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
