#include "transport/shm/recv_channel_table.h"

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
constexpr auto kAcceptAgain = std::chrono::milliseconds(20);

}  // namespace

Error RecvChannelTable::listen(uint64_t first_key) {
  listener_key_ = first_key;
  next_key_ = first_key + 1;
  address_ = "@ringdist-shm-" + std::to_string(random_id());
  auto listener = listen_unix(address_);
  if (!listener.ok()) return listener.error();
  listener_ = std::move(listener.value());
  return epoll_.add(listener_.get(), EPOLLIN, listener_key_);
}

bool RecvChannelTable::on_event(uint64_t key) {
  if (key == listener_key_) {
    accept_all();
    return true;
  }
  auto it = links_.find(key);
  if (it == links_.end()) return false;
  const bool was_known = it->second->peer().has_value();
  it->second->on_event();
  if (const auto peer = it->second->peer(); peer && !was_known)
    for (const auto& [other, link] : links_)
      if (other != key && link->peer() == peer) link->replace();
  if (it->second->for_exports())
    hand_over(it);
  else
    close_unneeded_socket(*it->second);
  return true;
}

// Its connection is that of another link from here on, which has its events.
void RecvChannelTable::hand_over(
    std::map<uint64_t, std::unique_ptr<RecvChannel>>::iterator caller) {
  RecvChannel& from = *caller->second;
  const ShmHello hello = *from.for_exports();
  const auto found = std::find_if(links_.begin(), links_.end(), [&](const auto& entry) {
    return entry.second->is_of(hello.from, hello.index);
  });
  if (found == links_.end())
    return from.end(Error(ErrorKind::kProtocol, "it lends for a link that is not there"));
  auto& [key, link] = *found;
  link->on_event();  // the former has ended before this one began
  close_unneeded_socket(*link);
  if (link->ended() || link->socket())
    return from.end(Error(ErrorKind::kProtocol, "it lends for a link for which another does"));
  if (Error error = epoll_.modify(from.socket().get(), EPOLLIN, key)) return from.end(error);
  link->begin_exports(from.take_socket());
  links_.erase(caller);
  link->on_event();
  close_unneeded_socket(*link);
}

void RecvChannelTable::close_unneeded_socket(RecvChannel& link) const {
  if (!link.needs_socket()) close_socket(link);
}

// Events of a socket whose copy another process holds would go on.
void RecvChannelTable::close_socket(RecvChannel& link) const {
  if (link.socket()) epoll_.remove(link.socket().get());
  link.close_socket();
}

void RecvChannelTable::accept_all() {
  for (int n = 0; n < kMostAccepts; ++n) {
    Fd fd = accept_connection(listener_);
    if (!fd) {
      if (!exhausted(errno)) return;
      if (!warned_)
        log(LogLevel::kWarn, system_error("shared memory: peers wait", errno).message());
      warned_ = true;
      epoll_.remove(listener_.get());  // else we would be woken for it again and again
      accept_again_ = Clock::now() + kAcceptAgain;
      return;
    }
    const auto who = peer_credentials(fd);
    if (!who.ok() || who.value().uid != geteuid()) continue;  // closes it
    const uint64_t key = next_key_++;
    if (epoll_.add(fd.get(), EPOLLIN, key)) continue;
    links_[key] = std::make_unique<RecvChannel>(own_, bells_, me_, std::move(fd));
  }
}

bool RecvChannelTable::deliver(TransportDelegate& receiver) {
  bool any = false;
  for (const auto& [key, link] : links_) any |= link->deliver(receiver, kMostMessages);
  return any;
}

bool RecvChannelTable::has_messages() const {
  return std::any_of(links_.begin(), links_.end(),
                     [](const auto& entry) { return entry.second->has_messages(); });
}

bool RecvChannelTable::has_messages_of(ContextId peer) const {
  return std::any_of(links_.begin(), links_.end(), [peer](const auto& entry) {
    return entry.second->peer() == peer && entry.second->has_messages();
  });
}

bool RecvChannelTable::has_finished() const {
  return std::any_of(links_.begin(), links_.end(), [](const auto& entry) {
    return entry.second->finished() && !entry.second->was_released();
  });
}

bool RecvChannelTable::reap(TimePoint now,
                            const std::function<void(ContextId, const Error&)>& lost) {
  if (accept_again_ && now >= *accept_again_) {
    accept_again_.reset();
    if (epoll_.add(listener_.get(), EPOLLIN, listener_key_)) accept_again_ = now + kAcceptAgain;
  }
  bool any = false;
  for (auto it = links_.begin(); it != links_.end();) {
    RecvChannel& link = *it->second;
    if (link.is_stranger(now)) link.end(Error(ErrorKind::kProtocol, "it said nothing"));
    if (const auto due = link.due(); due && now >= *due) link.answer();
    link.check_end();
    close_unneeded_socket(link);
    if (link.finished() && !link.was_released()) {
      link.release();
      if (link.peer())
        lost(*link.peer(), link.error());
      else if (link.error().kind() != ErrorKind::kPeerLost)  // which may dial again
        log(LogLevel::kWarn, "shared memory: a connection was refused: " + link.error().message());
      any = true;
    }
    it = link.over() ? links_.erase(it) : std::next(it);
  }
  return any;
}

std::optional<TimePoint> RecvChannelTable::due() const {
  std::optional<TimePoint> first = accept_again_;
  for (const auto& [key, link] : links_)
    if (const auto due = link->due(); due && (!first || *due < *first)) first = due;
  return first;
}

void RecvChannelTable::drop(ContextId peer, const Error& cause) {
  for (const auto& [key, link] : links_)
    if (link->peer() == peer) link->end(cause);
}

void RecvChannelTable::close() {
  for (const auto& [key, link] : links_) close_socket(*link);
  links_.clear();
  epoll_.remove(listener_.get());
  listener_.reset();
}

}  // namespace ringdist::shm
