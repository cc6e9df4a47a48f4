// Listening sockets of the control plane: an abstract AF_UNIX socket for processes of this host,
// and TCP sockets for other hosts. Control thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "base/config.h"
#include "base/error.h"
#include "control/control_connection.h"
#include "os/epoll.h"
#include "os/fd.h"
#include "os/socket.h"

namespace ringdist {

// Opens the sockets and accepts connections on them. When descriptors run out it pauses instead of
// spinning.
class ControlListeners {
 public:
  // Called for each accepted connection. `who` is set on local links.
  using Accept = std::function<void(Fd fd, LinkKind kind, const PeerCredentials& who)>;

  explicit ControlListeners(const Epoll& epoll) : epoll_(epoll) {}

  // Opens both sockets. `unix_name` begins with '@'; `ip` is numeric, and `ports` has the ports to
  // try. If the system has no AF_UNIX sockets, there is none and unix_name() is empty.
  Error listen(const std::string& unix_name, const std::string& ip, const Config::PortRange& ports);
  // Adds a listening socket for processes of other hosts.
  void add(Fd tcp);
  const std::string& unix_name() const { return unix_name_; }
  const std::string& tcp_address() const { return tcp_address_; }
  // Closes all listening sockets. After that add() closes what it is given.
  void stop();

  // Accepts connections after an event. Returns false if `key` is not that of a listener.
  bool handle(uint64_t key, const Accept& accept);
  // Accepts all connections that processes of this host have dialed so far. Returns false if there
  // were not enough descriptors.
  bool accept_local(const Accept& accept);
  // Resumes sockets that were paused for want of descriptors.
  void tick();

 private:
  struct Listener {
    Fd fd;
    LinkKind kind;
    // Not in the epoll set: descriptors, or memory for epoll, ran out. The next tick tries again.
    bool muted = false;
  };

  // Accepts a limited number of connections. Returns true if there may be more.
  bool accept_some(Listener& listener, const Accept& accept);

  const Epoll& epoll_;
  std::string unix_name_;
  std::string tcp_address_;
  std::map<uint64_t, Listener> listeners_;
  bool warned_ = false;  // about missing descriptors; once is enough
};

}  // namespace ringdist
