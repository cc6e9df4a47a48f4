#include "os/eventfd.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

namespace ringdist {

Result<EventFd> EventFd::create() {
  Fd fd = Fd::open([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (!fd) return system_error("eventfd", errno);
  return EventFd(std::move(fd));
}

void EventFd::signal() const {
  int saved = errno;  // also runs inside signal handlers
  uint64_t one = 1;
  // Fails only when the counter is full, and then the reader is awake anyway.
  [[maybe_unused]] ssize_t written = write(fd_.get(), &one, sizeof one);
  errno = saved;
}

bool EventFd::drain() const {
  uint64_t count = 0;
  return read(fd_.get(), &count, sizeof count) == sizeof count;
}

}  // namespace ringdist
