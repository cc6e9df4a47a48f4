// A connection as a stream of bytes: a non-blocking socket, plain or encrypted by TLS. Also the
// interface of TLS, which a library of its own implements (os/tls).
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/buffers.h"
#include "os/fd.h"
#include "os/fork_guard.h"

namespace ringdist {

// Encryption of one connection, over a socket that the caller owns. The calls have the results of
// the functions of Stream. One thread at a time.
class TlsConnection {
 public:
  virtual ~TlsConnection() = default;
  virtual int handshake(int fd) = 0;
  virtual ssize_t read(int fd, Bytes into) = 0;
  virtual ssize_t write(int fd, std::span<const iovec> parts) = 0;
  virtual bool flush(int fd) = 0;
  virtual bool has_input() const = 0;
  virtual bool has_output() const = 0;
  // Sends the peer a notice that nothing follows, if that is possible without waiting.
  virtual void end_output(int fd) = 0;
  // Returns the process at the other end, which the handshake has proven; 0 before that.
  virtual uint64_t peer() const = 0;
  // Returns a text that names the certificate of that process; empty without one.
  virtual std::string peer_name() const { return ""; }
  // Returns true once anything was read from the socket.
  virtual bool heard() const = 0;
  // Returns why the connection has failed; empty if it has not.
  virtual std::string failure() const = 0;
};

// Returns true if the bytes that wait on a connection do not begin a handshake of TLS.
bool sends_plain(const Fd& connection);

// Owns a connection. Errors are errno values, as of the system calls; EPROTO is a failure of TLS.
// A plain stream costs no more than its system calls. In a forked child it does nothing. One thread
// at a time.
class Stream {
 public:
  Stream() = default;
  // Without `tls`, the stream is plain.
  explicit Stream(Fd fd, std::unique_ptr<TlsConnection> tls = nullptr)
      : fd_(std::move(fd)), tls_(std::move(tls)) {}
  Stream(Stream&&) noexcept = default;
  Stream& operator=(Stream&& other) noexcept {
    close();
    fd_ = std::move(other.fd_);
    tls_ = std::move(other.tls_);
    mark_ = other.mark_;
    return *this;
  }
  ~Stream() { close(); }

  const Fd& fd() const { return fd_; }
  explicit operator bool() const { return static_cast<bool>(fd_); }

  // Continues a dial after an event: its connect, then the handshake of TLS. Returns 0 once the
  // stream can be used, EAGAIN while it waits for another event (see events()), or the error.
  int establish();
  // Continues the handshake on a socket that is connected. Returns as establish() does.
  int handshake() { return tls_ ? tls_->handshake(fd_.get()) : 0; }
  // Returns the events of epoll to wait for: EPOLLIN, and EPOLLOUT while has_output().
  uint32_t events() const;

  // Reads what has arrived, and first continues the handshake of a stream that was accepted.
  // Returns as recv(2): the number of bytes, 0 at the end, or -1 and errno.
  // Fewer bytes than `into` has room for mean that nothing more is there at present. A TLS stream
  // that ends without the peer's notice of its end is an error.
  ssize_t read(Bytes into) {
    return tls_ ? tls_->read(fd_.get(), into)
                : ::recv(fd_.get(), into.data(), into.size(), MSG_DONTWAIT);
  }
  // Writes as much of `parts` as the stream takes. Returns as sendmsg(2). TLS may keep bytes that
  // it has taken, see has_output().
  ssize_t write(std::span<const iovec> parts);
  ssize_t write(ConstBytes bytes) {
    const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    return write(std::span(&part, 1));
  }
  // Sends encrypted bytes that the socket did not take before. Returns false on an error, with
  // errno.
  bool flush() { return !has_output() || tls_->flush(fd_.get()); }
  // Returns true if bytes can be read without an event. Only TLS reads ahead.
  bool has_input() const { return tls_ && tls_->has_input(); }
  bool has_output() const { return tls_ && tls_->has_output(); }

  // Shuts the sending direction down.
  void end_output();
  // Returns the socket of a plain stream, which has none afterwards.
  Fd release() { return std::move(fd_); }
  // Closes the connection. A TLS peer gets a notice of the end if that needs no wait.
  void close();

  bool is_encrypted() const { return tls_ != nullptr; }
  // Returns true if a TLS stream has not begun, and the peer has sent something that is not TLS.
  bool begins_plain() const { return tls_ && !tls_->heard() && sends_plain(fd_); }
  // Returns the process at the other end that TLS has proven; 0 on a plain stream.
  uint64_t peer() const { return tls_ ? tls_->peer() : 0; }
  // Returns its certificate for a message, or "the key" if it has none.
  std::string peer_name() const {
    const std::string name = tls_ ? tls_->peer_name() : "";
    return name.empty() ? "the key" : name;
  }
  // Returns why TLS has failed; empty if it has not.
  std::string failure() const { return tls_ ? tls_->failure() : ""; }
  // Returns the text of an error of this stream.
  std::string describe(int errno_value) const;

 private:
  Fd fd_;
  std::unique_ptr<TlsConnection> tls_;
  ForkMark mark_;
};

}  // namespace ringdist
