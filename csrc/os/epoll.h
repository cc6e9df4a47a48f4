// Wrappers of epoll and eventfd.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "os/fd.h"

namespace ringdist {

// Set of descriptors to wait for. Each has a key, which is returned with its events. One thread
// waits; any thread may add, modify or remove descriptors. The descriptors are not owned.
class Epoll {
 public:
  struct Event {
    uint64_t key;
    uint32_t events;  // EPOLLIN | ...
  };

  static Result<Epoll> create();

  Error add(int fd, uint32_t events, uint64_t key) const;
  Error modify(int fd, uint32_t events, uint64_t key) const;
  // Removes a descriptor. This is required before close(): while another process holds a copy of
  // the descriptor, its events would continue.
  void remove(int fd) const;

  // Waits for events, at most for `timeout` (rounded up to a millisecond; a negative one means no
  // limit). The result is valid until the next call. It is empty after a signal. It allocates
  // nothing and does not throw. At most 64 events are returned; the next call returns the rest.
  std::span<const Event> wait(Duration timeout);

  // Returns the descriptor of the set, so that another Epoll can wait for it.
  int get() const { return fd_.get(); }

 private:
  explicit Epoll(Fd fd) : fd_(std::move(fd)) {}

  Fd fd_;
  std::vector<Event> events_;
};

// Wakes a thread that waits in poll or epoll. signal() may be called by any thread or signal
// handler.
class EventFd {
 public:
  static Result<EventFd> create();

  void signal() const;
  // Discards all signals so far. Returns true if there was one.
  bool drain() const;
  int get() const { return fd_.get(); }

 private:
  explicit EventFd(Fd fd) : fd_(std::move(fd)) {}

  Fd fd_;
};

}  // namespace ringdist
