// How one process wakes others and they see that it has ended: a pipe. Who is to be woken keeps its
// reading end, and passes the other to those who may wake it; theirs becomes an event (EPOLLERR,
// with no events asked for) when the reading end is closed, by its owner or by the kernel. So one
// descriptor for each process does what an eventfd and a connection would.
#pragma once

#include "base/error.h"
#include "os/fd.h"

namespace ringdist {

// The own one. One thread at a time, but for ring().
class Doorbell {
 public:
  static Result<Doorbell> create();

  // Becomes readable when somebody rings.
  int get() const { return heard_.get(); }
  // Forgets all rings so far.
  void drain() const;
  // As one of the others would.
  void ring() const;
  // What others need to ring: to be passed on, and for RemoteDoorbell.
  const Fd& write_end() const { return write_end_; }
  // Nobody is heard any more, and everybody who could ring sees it.
  void close() { heard_.reset(); }

 private:
  Doorbell(Fd heard, Fd write_end) : heard_(std::move(heard)), write_end_(std::move(write_end)) {}

  Fd heard_;
  Fd write_end_;  // kept, or the pipe would end with the last of the others
};

// Another's. ring() may come from any thread.
class RemoteDoorbell {
 public:
  explicit RemoteDoorbell(Fd write_end) : write_end_(std::move(write_end)) {}

  // Without effect on who is gone; never a SIGPIPE. Who has not heard for thousands of rings will.
  void ring() const;
  int get() const { return write_end_.get(); }

 private:
  Fd write_end_;
};

}  // namespace ringdist
