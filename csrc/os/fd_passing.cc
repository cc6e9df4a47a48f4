// Descriptors in messages of AF_UNIX sockets.
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "os/socket.h"

namespace ringdist {
namespace {

// Space for the descriptors of one message, aligned as the kernel requires.
union Control {
  cmsghdr align;
  std::array<char, CMSG_SPACE(kMaxPassedFds * sizeof(int))> bytes;
};
static_assert(sizeof(Control) == CMSG_LEN(kMaxPassedFds * sizeof(int)), "it fits no more of them");

// Moves received descriptors to `out`, which must have space: an exception would leak them.
void take_fds(const fork_guard::Hold& hold, msghdr& message, std::vector<Fd>& out) noexcept {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      out.push_back(Fd::adopt(hold, fd));
    }
  }
}

}  // namespace

Error send_with_fds(const Fd& socket, ConstBytes note, std::span<const int> fds, bool* later) {
  check(fds.size() <= kMaxPassedFds, "too many descriptors in one message");
  iovec vector{const_cast<std::byte*>(note.data()), note.size()};
  Control control{};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(part), fds.data(), fds.size_bytes());
  }
  const ssize_t sent = sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == static_cast<ssize_t>(note.size())) return {};
  const int problem = sent < 0 ? errno : EMSGSIZE;
  if (later) *later = passes(problem);
  return system_error("passing descriptors", problem);
}

Result<ReceivedFds> receive_with_fds(const Fd& socket, Bytes note, bool& empty) {
  iovec vector{note.data(), note.size()};
  Control control{};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  ReceivedFds out;
  out.fds.reserve(kMaxPassedFds);
  int problem = 0;
  {
    // No child may get a received descriptor before it is registered.
    const fork_guard::Hold hold(kMaxPassedFds);
    const ssize_t got = recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) problem = errno;
    if (got > 0) {
      out.bytes = static_cast<size_t>(got);
      take_fds(hold, message, out.fds);
    }
  }
  // A lack of memory passes, so it is no reason to give the connection up.
  empty = problem == EAGAIN || problem == EWOULDBLOCK || problem == EINTR || problem == ENOMEM ||
          problem == ENOBUFS;
  if (problem != 0 && !empty)
    return Error(ErrorKind::kPeerLost, std::string("recvmsg: ") + std::strerror(problem));
  if (message.msg_flags & MSG_CTRUNC)
    return Error(ErrorKind::kSystem,
                 "this process has no descriptor left for what another passed to it: raise "
                 "'ulimit -n'");
  return out;
}

}  // namespace ringdist
