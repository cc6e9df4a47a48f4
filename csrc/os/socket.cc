#include "os/socket.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <memory>
#include <string_view>

namespace ringdist {
namespace {

constexpr int kFlags = SOCK_NONBLOCK | SOCK_CLOEXEC;
constexpr int kBacklog = 4096;  // the kernel takes the smaller of this and net.core.somaxconn

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// The path of an abstract name begins with a zero byte. It ends by its length, without a zero.
std::optional<Address> unix_address(const std::string& name) {
  Address out;
  auto* un = reinterpret_cast<sockaddr_un*>(&out.storage);
  if (name.size() < 2 || name[0] != '@' || name.size() > sizeof un->sun_path) return std::nullopt;
  un->sun_family = AF_UNIX;
  std::memcpy(un->sun_path + 1, name.data() + 1, name.size() - 1);
  out.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  return out;
}

std::optional<Address> ip_address(const std::string& ip, uint16_t port) {
  Address out;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
  if (inet_pton(AF_INET, ip.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    out.length = sizeof *v4;
    return out;
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
  const size_t scope = std::min(ip.find('%'), ip.size());
  if (inet_pton(AF_INET6, ip.substr(0, scope).c_str(), &v6->sin6_addr) != 1) return std::nullopt;
  if (scope < ip.size()) v6->sin6_scope_id = if_nametoindex(ip.c_str() + scope + 1);
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(port);
  out.length = sizeof *v6;
  return out;
}

// The port follows the last colon, because an IPv6 address has colons, too.
std::optional<Address> parse_address(const std::string& text) {
  auto colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string ip = text.substr(0, colon);
  if (ip.size() > 2 && ip.front() == '[' && ip.back() == ']') ip = ip.substr(1, ip.size() - 2);
  uint16_t port = 0;
  const char* end = text.data() + text.size();
  auto parsed = std::from_chars(text.data() + colon + 1, end, port);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return ip_address(ip, port);
}

std::string format_ip_address(const Address& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.storage.ss_family == AF_INET) {
    auto* v4 = reinterpret_cast<const sockaddr_in*>(&address.storage);
    inet_ntop(AF_INET, &v4->sin_addr, text.data(), text.size());
    return format_address(text.data(), ntohs(v4->sin_port));
  }
  auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
  inet_ntop(AF_INET6, &v6->sin6_addr, text.data(), text.size());
  std::string ip = text.data();
  std::array<char, IF_NAMESIZE> name{};
  if (v6->sin6_scope_id != 0 && if_indextoname(v6->sin6_scope_id, name.data()))
    ip += std::string("%") + name.data();
  return format_address(ip, ntohs(v6->sin6_port));
}

Error bad_address(const std::string& text) {
  return Error(ErrorKind::kInvalidArgument, "\"" + text + "\" is not a socket address");
}

// Small messages must not wait until earlier ones are confirmed (Nagle's algorithm).
void set_no_delay(const Fd& fd) {
  int one = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

Fd open_socket(int family) {
  return Fd::open([family] { return socket(family, SOCK_STREAM | kFlags, 0); });
}

Result<Fd> listen_on(const Address& address, const std::string& text, bool* in_use = nullptr) {
  Fd fd = open_socket(address.storage.ss_family);
  if (!fd) return system_error("socket", errno);
  // Connections of a former process, which the kernel keeps for a while, do not occupy a port.
  const int one = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  const bool bound = bind(fd.get(), address.get(), address.length) == 0;
  if (bound && listen(fd.get(), kBacklog) == 0) return fd;
  const int problem = errno;
  if (in_use) *in_use = problem == EADDRINUSE;
  return system_error((bound ? "listen on " : "bind to ") + text, problem);
}

ConnectAttempt failed(int errno_value, Error error) {
  return {Fd(), false, ConnectFailure{errno_value, std::move(error)}};
}

// A link-local address of another host names the interface of that host. The way there begins at
// the interface of `own`.
void take_scope(Address& address, const Address& own) {
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (v6->sin6_family != AF_INET6 || own.storage.ss_family != AF_INET6) return;
  if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))
    v6->sin6_scope_id = reinterpret_cast<const sockaddr_in6*>(&own.storage)->sin6_scope_id;
}

// The kernel picks the port in connect() and not in bind(), so that one port serves connections to
// many destinations.
Error bind_to(const Fd& fd, const Address& source) {
  int one = 1;
  setsockopt(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
  return bind(fd.get(), source.get(), source.length) == 0 ? Error() : system_error("bind", errno);
}

// Connects from `source` if it is given and of the same family.
ConnectAttempt connect_to(const Address& address, const std::string& text,
                          const std::optional<Address>& source = std::nullopt) {
  ConnectAttempt out;
  out.fd = open_socket(address.storage.ss_family);
  if (!out.fd) return failed(errno, system_error("socket", errno));
  if (address.storage.ss_family != AF_UNIX) set_no_delay(out.fd);
  if (source && source->storage.ss_family == address.storage.ss_family)
    if (Error error = bind_to(out.fd, *source)) return failed(EADDRNOTAVAIL, std::move(error));
  if (connect(out.fd.get(), address.get(), address.length) == 0) return out;
  if (errno != EINPROGRESS) return failed(errno, system_error("connect to " + text, errno));
  out.pending = true;
  return out;
}

}  // namespace

std::string format_address(const std::string& ip, uint16_t port) {
  bool v6 = ip.find(':') != std::string::npos;
  return (v6 ? "[" + ip + "]" : ip) + ":" + std::to_string(port);
}

// Only these errors mean that there are no such sockets. Others, such as a lack of descriptors,
// show in listen_unix().
Error check_unix_sockets() {
  const bool fails = !open_socket(AF_UNIX);
  const bool refused = fails && (errno == EPERM || errno == EACCES || errno == EAFNOSUPPORT ||
                                 errno == EPROTONOSUPPORT || errno == ENOSYS);
  return refused ? system_error("socket(AF_UNIX)", errno) : Error();
}

Result<Fd> listen_unix(const std::string& name) {
  auto address = unix_address(name);
  if (!address) return bad_address(name);
  return listen_on(*address, name);
}

ConnectAttempt connect_unix(const std::string& name) {
  auto address = unix_address(name);
  if (!address) return failed(EINVAL, bad_address(name));
  return connect_to(*address, name);
}

ConnectAttempt connect_tcp(const std::string& text, const std::string& ip) {
  auto address = parse_address(text);
  if (!address) return failed(EINVAL, bad_address(text));
  const auto source = parse_address(ip + ":0");
  if (source) take_scope(*address, *source);
  return connect_to(*address, text, source);
}

int connect_result(const Fd& fd) {
  int problem = 0;
  socklen_t length = sizeof problem;
  if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &problem, &length) != 0) return errno;
  return problem;
}

Error check_listener(const std::string& host, uint16_t port, Milliseconds limit) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (int problem = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found))
    return Error(ErrorKind::kSystem, "looking up " + host + ": " + gai_strerror(problem));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  Error out(ErrorKind::kSystem, "looking up " + host + ": no address");
  for (const addrinfo* a = found; a; a = a->ai_next) {
    Address address;
    address.length = a->ai_addrlen;
    std::memcpy(&address.storage, a->ai_addr, a->ai_addrlen);
    const auto connecting = connect_to(address, format_address(host, port));
    if (connecting.failure) {
      out = connecting.failure->error;
      continue;
    }
    pollfd writable{connecting.fd.get(), POLLOUT, 0};
    const TimePoint until = Clock::now() + limit;
    int ready = connecting.pending ? -1 : 1;
    while (ready < 0 && Clock::now() < until) {  // repeated if a signal interrupts it
      ready = poll(&writable, 1, static_cast<int>(milliseconds_until(until).count()));
      if (ready < 0 && errno != EINTR) break;
    }
    const bool late = ready < 1;
    const int problem = late ? ETIMEDOUT : connect_result(connecting.fd);
    if (problem == 0) return {};
    out = system_error("connect to " + format_address(host, port), problem);
  }
  return out;
}

// A port may be found taken as late as by listen(), because of SO_REUSEADDR.
Result<Fd> listen_tcp(const std::string& ip, uint16_t first, uint16_t last) {
  for (int port = first;; ++port) {
    auto address = ip_address(ip, static_cast<uint16_t>(port));
    if (!address) return bad_address(ip);
    bool in_use = false;
    auto out = listen_on(*address, format_address(ip, static_cast<uint16_t>(port)), &in_use);
    if (!in_use) return out;
    if (port < last) continue;
    const std::string what =
        first >= last ? "port " + std::to_string(first)
                      : "all ports from " + std::to_string(first) + " to " + std::to_string(last);
    return Error(ErrorKind::kSystem, what + " of " + ip +
                                         " are in use: set RINGDIST_PORT to a "
                                         "range with a free port for each rank");
  }
}

namespace {

// `get` is getsockname() or getpeername(). Returns nothing if it fails, and sets errno.
template <typename Get>
std::optional<Address> address_by(Get get, int descriptor) {
  Address out;
  out.length = sizeof out.storage;
  if (get(descriptor, reinterpret_cast<sockaddr*>(&out.storage), &out.length) != 0)
    return std::nullopt;
  return out;
}

std::string remote_address(int descriptor) {
  const auto address = address_by(getpeername, descriptor);
  return address && address->storage.ss_family != AF_UNIX ? format_ip_address(*address) : "";
}

}  // namespace

Result<std::string> local_address(const Fd& fd) {
  const auto address = address_by(getsockname, fd.get());
  if (!address) return system_error("getsockname", errno);
  return format_ip_address(*address);
}

std::string remote_address(const Fd& fd) { return remote_address(fd.get()); }

std::pair<std::string, std::string> ends_of(int descriptor) {
  const std::string remote = remote_address(descriptor);
  const auto local = address_by(getsockname, descriptor);
  if (remote.empty() || !local) return {};
  return {without_port(format_ip_address(*local)), without_port(remote)};
}

std::string without_port(const std::string& address) {
  return address.substr(0, address.rfind(':'));
}

// Each host has its own name for the network of a link-local address.
bool may_have_ip(const std::string& address, const std::string& ip) {
  const auto without_scope = [](std::string_view text) {
    return text.substr(0, text.find_first_of("%]"));
  };
  return without_scope(without_port(address)) == without_scope(ip) ||
         (!ip.empty() && address.starts_with('[') != ip.starts_with('['));
}

void hang_up(const Fd& fd) {
  if (fd) shutdown(fd.get(), SHUT_RDWR);
}

size_t unread(const Fd& fd) {
  int bytes = 0;
  return ioctl(fd.get(), SIOCOUTQ, &bytes) == 0 ? static_cast<size_t>(bytes) : 0;
}

void break_after(const Fd& fd, int64_t milliseconds) {
  const auto given = static_cast<unsigned>(std::clamp<int64_t>(milliseconds, 1, INT_MAX));
  setsockopt(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &given, sizeof given);
}

void notice_dead_peers(const Fd& fd) {
  const int on = 1, idle = 30, interval = 10, probes = 3;  // seconds, but for the number of probes
  (void)setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  (void)setsockopt(fd.get(), IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  (void)setsockopt(fd.get(), IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  (void)setsockopt(fd.get(), IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

void limit_unsent(const Fd& fd, int bytes) {
  (void)setsockopt(fd.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
}

Fd accept_connection(const Fd& listener) {
  Fd fd = Fd::open([&] { return accept4(listener.get(), nullptr, nullptr, kFlags); });
  if (fd) set_no_delay(fd);  // no effect on AF_UNIX
  return fd;
}

bool exhausted(int errno_value) {
  return errno_value == EMFILE || errno_value == ENFILE || errno_value == ENOBUFS ||
         errno_value == ENOMEM;
}

bool passes(int errno_value) {
  return errno_value == EAGAIN || errno_value == EINTR || errno_value == ENOBUFS ||
         errno_value == ENOMEM || errno_value == ETOOMANYREFS;
}

Result<PeerCredentials> peer_credentials(const Fd& fd) {
  ucred given{};
  socklen_t length = sizeof given;
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &given, &length) != 0)
    return system_error("SO_PEERCRED", errno);
  return PeerCredentials{given.pid, given.uid};
}

// A process of another pid namespace has another pid than its name contains. But the kernel reports
// the same one for its listening socket as for its connections.
bool is_listener(pid_t pid, const std::string& name) {
  if (pid == 0 || name.find("-" + std::to_string(pid) + "-") != std::string::npos) return true;
  const ConnectAttempt attempt = connect_unix(name);
  if (attempt.failure) return false;
  const auto who = peer_credentials(attempt.fd);
  return who.ok() && (who.value().pid == 0 || who.value().pid == pid);
}

}  // namespace ringdist
