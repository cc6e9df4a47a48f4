#include "control/handshakes.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.h"
#include "os/event_loop.h"
#include "os/socket.h"

namespace ringdist {
namespace {

constexpr size_t kMostAccepted = 256;  // handshakes of accepted connections
constexpr Duration kLimit = std::chrono::seconds(5);
constexpr Duration kLateCheck = Milliseconds(250);  // interval of the check for late ones
constexpr uint64_t kAddedKey = 0;
constexpr Duration kLogFailuresEvery = std::chrono::seconds(1);

}  // namespace

Result<std::unique_ptr<Handshakes>> Handshakes::start() {
  auto epoll = Epoll::create();
  if (!epoll.ok()) return epoll.error();
  auto added = EventFd::create();
  if (!added.ok()) return added.error();
  auto ready = EventFd::create();
  if (!ready.ok()) return ready.error();
  std::unique_ptr<Handshakes> out(
      new Handshakes(std::move(epoll.value()), std::move(added.value()), std::move(ready.value())));
  if (Error error = out->epoll_.add(out->added_.get(), EPOLLIN, kAddedKey)) return error;
  try {
    out->thread_ = thread_without_signals("ringdist-tls", [self = out.get()] { self->run(); });
  } catch (...) {
    return current_exception_error();
  }
  return out;
}

Handshakes::~Handshakes() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  added_.signal();
  if (thread_.joinable()) thread_.join();
}

void Handshakes::add(uint64_t key, Stream stream) {
  {
    std::lock_guard lock(mutex_);
    // The thread is behind if there are so many.
    if (key == 0 && new_.size() >= kMostAccepted)
      if (const auto oldest = std::ranges::find(new_, 0, &std::pair<uint64_t, Stream>::first);
          oldest != new_.end())
        new_.erase(oldest);
    new_.emplace_back(key, std::move(stream));
  }
  added_.signal();
}

std::vector<Handshakes::Ended> Handshakes::take() {
  results_ready_.drain();
  std::lock_guard lock(mutex_);
  return std::exchange(results_, {});
}

// An exception, such as lack of memory, costs the handshakes that are under way.
void Handshakes::run() {
  for (;;) {
    try {
      for (const Epoll::Event& event : epoll_.wait(kLateCheck))
        if (event.key != kAddedKey) advance(event.key);
      {
        std::lock_guard lock(mutex_);
        if (stopping_) return;
      }
      const TimePoint now = Clock::now();
      adopt_added(now);
      while (!running_.empty() && now - running_.begin()->second.since > kLimit)
        end(running_.begin()->first, ETIMEDOUT, "no handshake within 5 s");
    } catch (...) {
      running_.clear();
    }
  }
}

void Handshakes::adopt_added(TimePoint now) {
  added_.drain();
  std::vector<std::pair<uint64_t, Stream>> added;
  {
    std::lock_guard lock(mutex_);
    added.swap(new_);
  }
  for (auto& [key, stream] : added) {
    if (key == 0) make_room();
    const uint64_t id = next_id_++;
    const int fd = stream.fd().get();
    running_.emplace(id, Running{key, std::move(stream), now, EPOLLIN});
    if (const Error error = epoll_.add(fd, EPOLLIN, id))
      end(id, ENOMEM, error.message());
    else if (key != 0)
      advance(id);  // the side that has dialed begins
  }
}

void Handshakes::make_room() {
  const auto is_accepted = [](const auto& one) { return one.second.key == 0; };
  if (std::ranges::count_if(running_, is_accepted) < static_cast<ptrdiff_t>(kMostAccepted)) return;
  auto oldest = std::ranges::find_if(
      running_, [&](const auto& one) { return is_accepted(one) && !one.second.heard; });
  if (oldest == running_.end()) oldest = std::ranges::find_if(running_, is_accepted);
  end(oldest->first, ECONNABORTED, "too many connections in a handshake");
}

void Handshakes::advance(uint64_t id) {
  const auto found = running_.find(id);
  if (found == running_.end()) return;
  Running& one = found->second;
  one.heard = true;
  const int problem = one.stream.handshake();
  if (problem != EAGAIN) return end(id, problem, problem ? one.stream.describe(problem) : "");
  const uint32_t events = one.stream.events();
  if (events != std::exchange(one.events, events))
    if (const Error error = epoll_.modify(one.stream.fd().get(), events, id))
      end(id, ENOMEM, error.message());
}

void Handshakes::end(uint64_t id, int problem, const std::string& reason) {
  const auto found = running_.find(id);
  Running& one = found->second;
  epoll_.remove(one.stream.fd().get());
  const std::string address = remote_address(one.stream.fd());
  Ended out{one.key, {}, problem, reason};
  if (problem == 0) out.stream = std::move(one.stream);
  running_.erase(found);
  if (problem != 0 && out.key == 0) {
    if (Clock::now() - logged_at_ < kLogFailuresEvery) return;
    logged_at_ = Clock::now();
    return log(LogLevel::kWarn,
               "refused a connection from " + (address.empty() ? "?" : address) + ": " + reason);
  }
  {
    std::lock_guard lock(mutex_);
    results_.push_back(std::move(out));
  }
  results_ready_.signal();
}

}  // namespace ringdist
