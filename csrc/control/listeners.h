// Where a process is dialed: inside its host and from others. Control thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "base/error.h"
#include "control/control_connection.h"
#include "os/epoll.h"
#include "os/fd.h"
#include "os/socket.h"

namespace ringdist {

class ControlListeners {
 public:
  // Somebody has dialed; `who` on local links.
  using Accept = std::function<void(Fd fd, LinkKind kind, const PeerCredentials& who)>;

  explicit ControlListeners(const Epoll& epoll) : epoll_(epoll) {}

  // `unix_name` begins with '@'; `ip` is numeric. Where the system has no sockets of AF_UNIX there
  // is no unix_name().
  Error listen(const std::string& unix_name, const std::string& ip);
  // One more socket that listens, for processes of other hosts.
  void add(Fd tcp);
  const std::string& unix_name() const { return unix_name_; }
  const std::string& tcp_address() const { return tcp_address_; }
  void stop();

  // An event: false if it is not about these.
  bool handle(uint64_t key, const Accept& accept);
  // All that processes of this host have dialed so far. False: not all, for want of descriptors.
  bool accept_local(const Accept& accept);
  // Tries again where descriptors were lacking.
  void tick();

 private:
  struct Listener {
    Fd fd;
    LinkKind kind;
    bool muted = false;  // accept failed for want of descriptors, or epoll of memory: try again at
                         // the next tick
  };

  // True: there may be more.
  bool accept_some(Listener& listener, const Accept& accept);

  const Epoll& epoll_;
  std::string unix_name_;
  std::string tcp_address_;
  std::map<uint64_t, Listener> listeners_;
  bool warned_ = false;  // that descriptors are lacking
};

}  // namespace ringdist
