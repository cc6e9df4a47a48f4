#include "os/epoll.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace ringdist {
namespace {

constexpr int kBatch = 64;  // most events of one wait()

Error control(int epoll, int operation, int fd, uint32_t events, uint64_t key) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  if (epoll_ctl(epoll, operation, fd, &event) != 0) return system_error("epoll_ctl", errno);
  return {};
}

}  // namespace

Result<Epoll> Epoll::create() {
  Fd fd = Fd::open([] { return epoll_create1(EPOLL_CLOEXEC); });
  if (!fd) return system_error("epoll_create1", errno);
  Epoll out(std::move(fd));
  out.events_.reserve(kBatch);  // so that wait() needs no memory
  return out;
}

Error Epoll::add(int fd, uint32_t events, uint64_t key) const {
  return control(fd_.get(), EPOLL_CTL_ADD, fd, events, key);
}

Error Epoll::modify(int fd, uint32_t events, uint64_t key) const {
  return control(fd_.get(), EPOLL_CTL_MOD, fd, events, key);
}

void Epoll::remove(int fd) const { epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd, nullptr); }

std::span<const Epoll::Event> Epoll::wait(Duration timeout) {
  events_.clear();
  std::array<epoll_event, kBatch> ready;
  auto ms = std::chrono::ceil<Milliseconds>(timeout).count();
  int count = epoll_wait(fd_.get(), ready.data(), kBatch, ms < 0 ? -1 : static_cast<int>(ms));
  for (int i = 0; i < count; ++i)
    events_.push_back(
        {ready[static_cast<size_t>(i)].data.u64, ready[static_cast<size_t>(i)].events});
  return events_;
}

Result<EventFd> EventFd::create() {
  Fd fd = Fd::open([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (!fd) return system_error("eventfd", errno);
  return EventFd(std::move(fd));
}

void EventFd::signal() const {
  int saved = errno;  // it also runs inside signal handlers
  uint64_t one = 1;
  // This fails only if the counter is full, and then the reader is awake anyway.
  [[maybe_unused]] ssize_t written = write(fd_.get(), &one, sizeof one);
  errno = saved;
}

bool EventFd::drain() const {
  uint64_t count = 0;
  return read(fd_.get(), &count, sizeof count) == sizeof count;
}

}  // namespace ringdist
