// Stream sockets: non-blocking, closed on exec, closed in forked children. Abstract AF_UNIX names
// (no file is left behind) and TCP on given addresses. Free functions over Fd; any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/buffers.h"
#include "base/clock.h"
#include "base/error.h"
#include "os/fd.h"

namespace ringdist {

// "ip:port" or "[ip6]:port" for a numeric address.
std::string format_address(const std::string& ip, uint16_t port);

// `name` begins with '@', which stands for the abstract namespace.
// Success, or why this system has no sockets of AF_UNIX: some sandboxes refuse them.
Error check_unix_sockets();
Result<Fd> listen_unix(const std::string& name);

// A connect that has failed at once: the caller often needs errno to decide whether to try again.
struct ConnectFailure {
  int errno_value = 0;
  Error error;
};
struct ConnectAttempt {
  Fd fd;
  bool pending = false;  // wait for writability, then ask connect_result
  std::optional<ConnectFailure> failure;
};
// EAGAIN means that the listener's queue is full.
ConnectAttempt connect_unix(const std::string& name);
ConnectAttempt connect_tcp(const std::string& address);  // as format_address writes it
// errno of a pending connect that became writable, 0 on success.
int connect_result(const Fd& fd);

// Success if somebody listens at the port of a host, given by name or address; of several addresses
// each is tried for so long. Blocks, also in the resolver.
Error check_listener(const std::string& host, uint16_t port, Milliseconds limit);

// Port 0: the kernel picks one; ask local_address.
Result<Fd> listen_tcp(const std::string& ip, uint16_t port);
Result<std::string> local_address(const Fd& fd);

// Ends the connection, also where a forked child or another process holds a copy of the descriptor.
void hang_up(const Fd& fd);

// How much of what was sent the other side has not read yet, or its kernel not confirmed; bytes.
size_t unread(const Fd& fd);
// TCP: the connection breaks when what was sent has not been confirmed for so long.
void break_after(const Fd& fd, int64_t milliseconds);

// The next waiting connection, or an empty Fd when there is none, or errno says why.
Fd accept_connection(const Fd& listener);
// Whether that errno means that the connection waits still, for descriptors or memory.
bool exhausted(int errno_value);

// True for an errno of connect or sendmsg that a lack for the moment causes: of room in a queue, of
// memory, or of descriptors that may be in flight between processes.
bool passes(int errno_value);

// Who is on the other side of an AF_UNIX connection. pid is 0 where it is not visible from here.
struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
};
Result<PeerCredentials> peer_credentials(const Fd& fd);

// Descriptors, and a few bytes that say what they are, from one process to another over an AF_UNIX
// stream (unix(7), SCM_RIGHTS). Any thread.
inline constexpr size_t kMaxPassedFds = 8;

// All of it or an Error (kSystem): a note of this kind is the first thing on its connection and is
// far smaller than a socket's buffer. `later`: the kernel lacks something for the moment, so the
// same call may succeed after a pause. All processes of a user may have RLIMIT_NOFILE descriptors
// in flight together.
Error send_with_fds(const Fd& socket, ConstBytes note, std::span<const int> fds,
                    bool* later = nullptr);

struct ReceivedFds {
  size_t bytes = 0;  // 0: the other side has closed
  std::vector<Fd> fds;
};
// At most note.size() bytes and what came along with them; nothing there: no bytes and `empty`.
// Errors: kPeerLost where the connection is broken; kSystem where this process can hold no more
// descriptors.
Result<ReceivedFds> receive_with_fds(const Fd& socket, Bytes note, bool& empty);

}  // namespace ringdist
