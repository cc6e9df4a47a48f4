#include "transport/shm/inbound.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "os/random.h"
#include "os/socket.h"

namespace ringdist::shm {
namespace {

constexpr int kMostMessages = 8;  // of one link, before others get their turn
constexpr int kMostAccepts = 16;  // at once: anybody can dial
constexpr auto kRetryTime = std::chrono::milliseconds(20);

}  // namespace

Error Inbound::listen(uint64_t first_key) {
  listener_key_ = first_key;
  next_key_ = first_key + 1;
  address_ = "@ringdist-shm-" + std::to_string(random_id());
  auto listener = listen_unix(address_);
  if (!listener.ok()) return listener.error();
  listener_ = std::move(listener.value());
  return epoll_.add(listener_.get(), EPOLLIN, listener_key_);
}

bool Inbound::on_event(uint64_t key) {
  if (key == listener_key_) {
    accept_all();
    return true;
  }
  auto it = links_.find(key);
  if (it == links_.end()) return false;
  it->second->on_event();
  return true;
}

void Inbound::accept_all() {
  for (int n = 0; n < kMostAccepts; ++n) {
    Fd fd = accept_connection(listener_);
    if (!fd) {
      if (!exhausted(errno)) return;
      if (!told_) log(LogLevel::kWarn, system_error("shared memory: peers wait", errno).message());
      told_ = true;
      epoll_.remove(listener_.get());  // else we would be woken for it again and again
      accept_again_ = Clock::now() + kRetryTime;
      return;
    }
    const auto who = peer_credentials(fd);
    if (!who.ok() || who.value().uid != geteuid()) continue;  // closes it
    const uint64_t key = next_key_++;
    if (epoll_.add(fd.get(), EPOLLIN, key)) continue;
    links_[key] = std::make_unique<Inlink>(own_, me_, std::move(fd));
  }
}

bool Inbound::deliver(Receiver& receiver) {
  bool any = false;
  for (const auto& [key, link] : links_) any |= link->deliver(receiver, kMostMessages);
  return any;
}

bool Inbound::has_messages() const {
  return std::any_of(links_.begin(), links_.end(),
                     [](const auto& entry) { return entry.second->has_messages(); });
}

bool Inbound::has_messages_of(ContextId peer) const {
  return std::any_of(links_.begin(), links_.end(), [peer](const auto& entry) {
    return entry.second->peer() == peer && entry.second->has_messages();
  });
}

bool Inbound::has_finished() const {
  return std::any_of(links_.begin(), links_.end(),
                     [](const auto& entry) { return entry.second->finished(); });
}

bool Inbound::reap(TimePoint now, const std::function<void(ContextId, const Error&)>& lost) {
  if (accept_again_ && now >= *accept_again_) {
    accept_again_.reset();
    if (epoll_.add(listener_.get(), EPOLLIN, listener_key_)) accept_again_ = now + kRetryTime;
  }
  bool any = false;
  for (auto it = links_.begin(); it != links_.end();) {
    Inlink& link = *it->second;
    if (link.is_stranger(now)) link.end(Error(ErrorKind::kProtocol, "it said nothing"));
    if (link.ended()) epoll_.remove(link.socket().get());  // its end would be an event for ever
    if (!link.finished()) {
      ++it;
      continue;
    }
    if (link.peer())
      lost(*link.peer(), link.error());
    else
      log(LogLevel::kWarn, "shared memory: a connection was refused: " + link.error().message());
    it = links_.erase(it);
    any = true;
  }
  return any;
}

std::optional<TimePoint> Inbound::due() const { return accept_again_; }

void Inbound::drop(ContextId peer) {
  for (const auto& [key, link] : links_)
    if (link->peer() == peer) link->end(Error(ErrorKind::kPeerLost, "the peer's process is gone"));
}

void Inbound::close() {
  for (const auto& [key, link] : links_) epoll_.remove(link->socket().get());
  links_.clear();
  epoll_.remove(listener_.get());
  listener_.reset();
}

}  // namespace ringdist::shm
