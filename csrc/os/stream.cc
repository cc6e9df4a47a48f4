#include "os/stream.h"

#include <sys/epoll.h>

#include <cerrno>
#include <cstring>

#include "os/socket.h"

namespace ringdist {
namespace {

constexpr std::byte kTlsHandshake{0x16};  // the first byte of TLS (RFC 8446, 5.1)

}  // namespace

bool sends_plain(const Fd& connection) {
  std::byte first{};
  return recv(connection.get(), &first, sizeof first, MSG_PEEK | MSG_DONTWAIT) == sizeof first &&
         first != kTlsHandshake;
}

int Stream::establish() {
  if (const int problem = connect_result(fd_)) return problem;
  return handshake();
}

uint32_t Stream::events() const { return has_output() ? EPOLLIN | EPOLLOUT : EPOLLIN; }

ssize_t Stream::write(std::span<const iovec> parts) {
  if (tls_) return tls_->write(fd_.get(), parts);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  return sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Stream::end_output() {
  if (!fd_ || mark_.forked()) return;
  if (tls_) tls_->end_output(fd_.get());
  shutdown(fd_.get(), SHUT_WR);
}

// In a forked child the number may be that of another file.
void Stream::close() {
  if (fd_ && tls_ && !mark_.forked()) tls_->end_output(fd_.get());
  tls_.reset();
  fd_.reset();
}

std::string Stream::describe(int errno_value) const {
  if (const std::string why = failure(); errno_value == EPROTO && !why.empty())
    return "TLS: " + why;
  return std::strerror(errno_value);
}

}  // namespace ringdist
