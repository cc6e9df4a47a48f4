// A set of descriptors to wait for, each with a key that comes back with its events. One thread
// waits; any thread may add or remove.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "os/fd.h"

namespace ringdist {

class Epoll {
 public:
  struct Event {
    uint64_t key;
    uint32_t events;  // EPOLLIN | ...
  };

  static Result<Epoll> create();

  Error add(int fd, uint32_t events, uint64_t key) const;
  Error modify(int fd, uint32_t events, uint64_t key) const;
  // Needed before close: while another process holds a copy of the descriptor, its events keep
  // coming.
  void remove(int fd) const;

  // Waits until something happens or the timeout is over (rounded up to a millisecond; negative:
  // for ever). The events are valid until the next call; none after a signal. It throws nothing.
  std::span<const Event> wait(Duration timeout);

  // So that an Epoll can itself be waited for.
  int get() const { return fd_.get(); }

 private:
  explicit Epoll(Fd fd) : fd_(std::move(fd)) {}

  Fd fd_;
  std::vector<Event> events_;
};

// Wakes a thread that waits in poll or epoll. signal() may come from any thread or signal handler.
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
