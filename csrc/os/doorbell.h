// Doorbell between processes: it wakes another process and also reports the end of that process. It
// is a pipe. The process to be woken keeps the read end and passes the write end to the processes
// that may wake it. When the read end is closed, by its owner or by the kernel, the write ends get
// EPOLLERR, which needs no requested events. So one descriptor per process does the work of an
// eventfd and a connection.
#pragma once

#include "base/error.h"
#include "os/fd.h"

namespace ringdist {

// Doorbell of this process. One thread at a time, except for ring().
class Doorbell {
 public:
  static Result<Doorbell> create();

  // Returns the descriptor that becomes readable when the doorbell rings.
  int get() const { return heard_.get(); }
  // Discards all rings so far.
  void drain() const;
  // Rings this doorbell from within the process.
  void ring() const;
  // Returns the end that other processes need for a RemoteDoorbell.
  const Fd& write_end() const { return write_end_; }
  // Stops receiving rings. All holders of the write end get an event.
  void close() { heard_.reset(); }

 private:
  Doorbell(Fd heard, Fd write_end) : heard_(std::move(heard)), write_end_(std::move(write_end)) {}

  Fd heard_;
  Fd write_end_;  // kept open; otherwise the pipe would end when the last peer closes its copy
};

// Doorbell of another process. Any thread may call ring().
class RemoteDoorbell {
 public:
  explicit RemoteDoorbell(Fd write_end) : write_end_(std::move(write_end)) {}

  // Wakes the other process. It never blocks and never raises SIGPIPE. If the process has ended, it
  // has no effect. If thousands of rings are unread, further ones are dropped, because the process
  // will wake anyway.
  void ring() const;
  int get() const { return write_end_.get(); }

 private:
  Fd write_end_;
};

}  // namespace ringdist
