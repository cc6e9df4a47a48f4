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
  const Fd& button() const { return button_; }
  // Nobody is heard any more, and everybody who could ring sees it.
  void close() { heard_.reset(); }

 private:
  Doorbell(Fd heard, Fd button) : heard_(std::move(heard)), button_(std::move(button)) {}

  Fd heard_;
  Fd button_;  // kept, or the pipe would end with the last of the others
};

// Another's. ring() may come from any thread.
class RemoteDoorbell {
 public:
  explicit RemoteDoorbell(Fd button) : button_(std::move(button)) {}

  // Without effect on who is gone; never a SIGPIPE. Who has not heard for thousands of rings will.
  void ring() const;
  int get() const { return button_.get(); }

 private:
  Fd button_;
};

}  // namespace ringdist
