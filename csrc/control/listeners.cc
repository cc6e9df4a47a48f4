#include "control/listeners.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/log.h"

namespace ringdist {
namespace {

constexpr uint64_t kUnixKey = 8;
constexpr uint64_t kTcpKey = 9;
constexpr int kMaxAccepts = 64;  // in a row, since any process can dial

}  // namespace

Error ControlListeners::listen(const std::string& unix_name, const std::string& ip,
                               const Config::PortRange& ports) {
  if (const Error refused = check_unix_sockets()) {
    log(LogLevel::kWarn, "control plane: " + refused.message() +
                             ": ranks of this host reach each other over TCP, without shared "
                             "memory, as if each were on a host of its own");
  } else {
    auto local = listen_unix(unix_name);
    if (!local.ok()) return local.error();
    unix_name_ = unix_name;
    listeners_[kUnixKey] = {std::move(local.value()), LinkKind::kLocal};
  }
  auto tcp = listen_tcp(ip, ports.first, ports.last);
  if (!tcp.ok()) return tcp.error();
  auto address = local_address(tcp.value());
  if (!address.ok()) return address.error();
  tcp_address_ = address.value();
  listeners_[kTcpKey] = {std::move(tcp.value()), LinkKind::kTcp};
  for (auto& [key, listener] : listeners_)
    if (Error e = epoll_.add(listener.fd.get(), EPOLLIN, key)) return e;
  return {};
}

// The socket begins muted, so that tick() adds it to the epoll set and tries again if that fails.
void ControlListeners::add(Fd tcp) {
  if (listeners_.empty()) return;  // stopped
  const uint64_t key = listeners_.rbegin()->first + 1;
  listeners_[key] = {std::move(tcp), LinkKind::kTcp, /*muted=*/true};
  tick();
}

void ControlListeners::stop() {
  for (auto& [key, listener] : listeners_) epoll_.remove(listener.fd.get());
  listeners_.clear();
}

bool ControlListeners::handle(uint64_t key, const Accept& accept) {
  const auto listener = listeners_.find(key);
  if (listener == listeners_.end()) return false;
  accept_some(listener->second, accept);
  return true;
}

bool ControlListeners::accept_local(const Accept& accept) {
  const auto local = listeners_.find(kUnixKey);
  if (local == listeners_.end()) return true;
  while (!local->second.muted && accept_some(local->second, accept)) {
  }
  return !local->second.muted;
}

void ControlListeners::tick() {
  for (auto& [key, listener] : listeners_)
    if (listener.muted)
      listener.muted = static_cast<bool>(epoll_.add(listener.fd.get(), EPOLLIN, key));
}

bool ControlListeners::accept_some(Listener& listener, const Accept& accept) {
  for (int n = 0; n < kMaxAccepts; ++n) {
    Fd fd = accept_connection(listener.fd);
    if (!fd) {
      if (!exhausted(errno)) return false;
      if (!warned_)
        log(LogLevel::kWarn, system_error("control plane: peers wait", errno).message());
      warned_ = true;
      epoll_.remove(listener.fd.get());  // otherwise the loop would spin on it
      listener.muted = true;
      return false;
    }
    PeerCredentials who;
    if (listener.kind == LinkKind::kLocal) {
      auto told = peer_credentials(fd);
      // Root may request a report; other users are refused.
      if (!told.ok() || (told.value().uid != geteuid() && told.value().uid != 0)) continue;
      who = told.value();
    }
    accept(std::move(fd), listener.kind, who);
  }
  return true;
}

}  // namespace ringdist
