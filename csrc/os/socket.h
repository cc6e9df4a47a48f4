// Stream sockets that are non-blocking, closed on exec and closed in forked children. There are
// abstract AF_UNIX names, which leave no file behind, and TCP on given addresses. Free functions
// over Fd; any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/buffers.h"
#include "base/clock.h"
#include "base/error.h"
#include "os/fd.h"

namespace ringdist {

// Formats a numeric address as "ip:port" or "[ip6]:port".
std::string format_address(const std::string& ip, uint16_t port);

// Returns success, or the reason why this system has no AF_UNIX sockets: some sandboxes refuse
// them.
Error check_unix_sockets();
// Listens on an abstract name. `name` begins with '@', which stands for the abstract namespace. The
// rest has at least one byte and at most 107. Errors: kInvalidArgument, kSystem.
Result<Fd> listen_unix(const std::string& name);

// Immediate failure of a connect. Callers often need errno to decide about another attempt.
struct ConnectFailure {
  int errno_value = 0;
  Error error;
};
// Started connection: established, pending or failed.
struct ConnectAttempt {
  Fd fd;
  bool pending = false;  // wait for writability, then call connect_result()
  std::optional<ConnectFailure> failure;
};
// Start a connection without blocking. The errno EAGAIN means that the listener's queue is full.
ConnectAttempt connect_unix(const std::string& name);
// The address of TCP is in the form of format_address(). The connection comes from `ip`, in the
// form of without_port(), or from one that the kernel chooses if it is empty. The scope of a
// link-local address (RFC 4007) is replaced by that of `ip`, since it names an interface of the
// other host.
ConnectAttempt connect_tcp(const std::string& address, const std::string& ip = "");
// Returns the errno of a pending connect when its socket became writable; 0 means success.
int connect_result(const Fd& fd);

// Returns success if a process listens on `port` of the host, given by name or address. If the name
// has several addresses, each is tried for at most `limit`. Blocks, also in the resolver. Error:
// kSystem.
Error check_listener(const std::string& host, uint16_t port, Milliseconds limit);

// Listens on a numeric address, at the first free port from `first` to `last`. For port 0 the
// kernel picks one, and local_address() returns it. Without `last` there is only `first`. Errors:
// kInvalidArgument, kSystem.
Result<Fd> listen_tcp(const std::string& ip, uint16_t first, uint16_t last = 0);
Result<std::string> local_address(const Fd& fd);
// Returns the address of the other end of a TCP connection; "" for other sockets and on errors.
std::string remote_address(const Fd& fd);
// Returns the addresses of this and of the other end of a TCP connection, in the form of
// without_port(); both are "" for other descriptors.
std::pair<std::string, std::string> ends_of(int descriptor);
// Returns an address in the form of format_address() without its port: "ip" or "[ip6]".
std::string without_port(const std::string& address);
// Returns true if a host that listens at `address` may have the ip `ip`, in the form of
// without_port(). Scopes are not compared. An IPv4 and an IPv6 address of one host cannot be
// compared, so these may be.
bool may_have_ip(const std::string& address, const std::string& ip);

// Shuts the connection down, even if a forked child or another process holds a copy of the
// descriptor.
void hang_up(const Fd& fd);

// Returns the bytes sent that the other side has not read (AF_UNIX) or its kernel has not confirmed
// (TCP). For AF_UNIX the kernel counts its own overhead, too. Returns 0 on an error.
size_t unread(const Fd& fd);
// For TCP: breaks the connection if sent data has not been confirmed for `milliseconds`. Values
// below 1 count as 1. Errors are ignored.
void break_after(const Fd& fd, int64_t milliseconds);
// For TCP: breaks an idle connection if the other host does not answer for a minute (tcp(7),
// SO_KEEPALIVE). Errors are ignored.
void notice_dead_peers(const Fd& fd);
// For TCP: the socket takes no more data while it has `bytes` that were not sent (tcp(7),
// TCP_NOTSENT_LOWAT). Errors are ignored.
void limit_unsent(const Fd& fd, int bytes);

// Accepts the next waiting connection. Returns an empty Fd if there is none or on errors; errno has
// the reason.
Fd accept_connection(const Fd& listener);
// Returns true if that errno means a lack of descriptors or memory, so that the connection still
// waits.
bool exhausted(int errno_value);

// Returns true if the errno of a connect or sendmsg has a temporary cause, so that a later call may
// succeed. Such causes are a full queue, lack of memory, a signal, or too many descriptors in
// flight between processes.
bool passes(int errno_value);

// Process at the other end of an AF_UNIX connection. `pid` is 0 if it is not visible from here.
struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
};
Result<PeerCredentials> peer_credentials(const Fd& fd);
// Returns true if process `pid`, as peer_credentials() reports it, listens on an abstract name. A
// name that contains "-<pid>-" need not be looked at. Also returns true if the kernel does not show
// the pid of one of both, which is 0 then. Returns false if nobody listens, or if the listener's
// queue is full.
bool is_listener(pid_t pid, const std::string& name);

// Most descriptors that one message can pass over an AF_UNIX stream (unix(7), SCM_RIGHTS).
inline constexpr size_t kMaxPassedFds = 8;

// Sends `note` and the descriptors completely, or returns a kSystem error. Partial writes cannot
// happen in practice: such a note is the first message on its connection and far smaller than a
// socket's buffer.
//
// If `later` is given, it is set to true when the kernel lacks a resource temporarily; a repeated
// call may then succeed. The processes of one user may together have RLIMIT_NOFILE descriptors in
// flight.
Error send_with_fds(const Fd& socket, ConstBytes note, std::span<const int> fds,
                    bool* later = nullptr);

// Result of receive_with_fds().
struct ReceivedFds {
  size_t bytes = 0;  // 0: the other side has closed
  std::vector<Fd> fds;
};
// Receives at most note.size() bytes and the descriptors that came with them. If nothing is there,
// the result has no bytes and `empty` is true. Errors: kPeerLost (the connection is broken),
// kSystem (this process has no free descriptors). In the second case the bytes are in `note` all
// the same.
Result<ReceivedFds> receive_with_fds(const Fd& socket, Bytes note, bool& empty);

}  // namespace ringdist
