// Connections of TLS 1.3 by OpenSSL, and the part that keys and certificates share.
#pragma once

#include <openssl/ssl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "base/buffers.h"
#include "base/error.h"
#include "os/tls_key.h"

namespace ringdist::tls {

template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* one) const {
    kFree(one);
  }
};
template <typename T, auto kFree>
using Owned = std::unique_ptr<T, Freed<kFree>>;

template <typename T>
T* required(T* made) {
  if (made == nullptr) throw std::bad_alloc();
  return made;
}

// Returns the library context of all keys. Configuration files of the machine do not apply in it.
// It is never freed: a thread that has used it uses it once more when the thread ends, which may
// be after the last key (https://github.com/openssl/openssl/issues/16778).
OSSL_LIB_CTX* library();

// A cipher suite, and the hash that a key for it is bound to.
struct Suite {
  uint8_t hash;  // on the wire
  const char* digest;
  size_t key_bytes;
  const char* name;
  std::array<uint8_t, 2> code;
};
inline constexpr size_t kMostKeyBytes = 48;
inline constexpr std::array<Suite, 2> kSuites = {
    {{1, "SHA256", 32, "TLS_CHACHA20_POLY1305_SHA256", {0x13, 0x03}},
     {2, "SHA384", kMostKeyBytes, "TLS_AES_256_GCM_SHA384", {0x13, 0x02}}}};

class OpenSslConnection;

// Settings of connections, and their proof. Subclasses have a key, or a certificate.
class OpenSslKey : public TlsKey, public std::enable_shared_from_this<OpenSslKey> {
 public:
  std::unique_ptr<TlsConnection> dial(uint64_t me, uint64_t peer) const override;
  std::unique_ptr<TlsConnection> accept(uint64_t me) const override;

  // Prepares a connection that this process dials. Throws std::bad_alloc.
  virtual void begin(OpenSslConnection&) const {}
  // Returns true if a handshake that has ended has proven the other side. Others cannot end, so
  // this is a second check.
  virtual bool is_proven(const OpenSslConnection& connection) const = 0;
  // Returns why a connection has failed with this reason of OpenSSL; empty for OpenSSL's own text.
  virtual std::string explain(const OpenSslConnection& connection, int reason) const = 0;
  // Returns a text that names the certificate of the other side; empty without one.
  virtual std::string name_peer(const OpenSslConnection&) const { return ""; }

  const TlsOptions& options() const { return options_; }
  const BIO_METHOD* bio() const { return bio_.get(); }
  SSL_CTX* context(bool dials) const { return dials ? dialing_.get() : accepting_.get(); }
  // Returns the suite for connections that this process dials.
  const Suite& suite() const;

 protected:
  explicit OpenSslKey(const TlsOptions& options);

 private:
  using Context = Owned<SSL_CTX, SSL_CTX_free>;
  static Context make(const SSL_METHOD* method);

  const TlsOptions options_;
  Owned<BIO_METHOD, BIO_meth_free> bio_;
  Context dialing_;
  Context accepting_;
};

class OpenSslConnection final : public TlsConnection {
 public:
  // `peer` is 0 on the side that has accepted.
  OpenSslConnection(std::shared_ptr<const OpenSslKey> key, uint64_t me, uint64_t peer);
  OpenSslConnection(const OpenSslConnection&) = delete;
  OpenSslConnection& operator=(const OpenSslConnection&) = delete;
  // Returns the connection of an object of OpenSSL.
  static OpenSslConnection& of(const SSL* ssl) {
    return *static_cast<OpenSslConnection*>(SSL_get_app_data(ssl));
  }

  int handshake(int fd) override;
  ssize_t read(int fd, Bytes into) override;
  ssize_t write(int fd, std::span<const iovec> parts) override;
  bool flush(int fd) override;
  bool has_input() const override { return may_have_input_; }
  bool heard() const override { return heard_; }
  bool has_output() const override { return sent_ < out_.size(); }
  void end_output(int fd) override;
  uint64_t peer() const override { return done_ ? claimed_ : 0; }
  std::string peer_name() const override { return done_ ? key_->name_peer(*this) : ""; }
  std::string failure() const override { return why_; }

  SSL* ssl() const { return ssl_.get(); }
  const OpenSslKey& key() const { return *key_; }
  bool is_done() const { return done_; }
  bool dialed() const { return dialed_; }
  uint64_t me() const { return me_; }
  // Returns the process that this one has dialed, or that the other side claims to be; 0 before
  // that. Nothing proves it before the end of the handshake.
  uint64_t claimed() const { return claimed_; }
  // Handles the ids that the dialing side has sent. Returns false if it means another process.
  bool claim(uint64_t from, uint64_t to);
  // Sets why the connection fails.
  void refuse(std::string why) { why_ = std::move(why); }
  // Keeps bytes for OpenSSL until the end of the handshake.
  const std::vector<std::byte>& keep(std::vector<std::byte> bytes) {
    return kept_ = std::move(bytes);
  }

  // Functions that OpenSSL calls for the socket.
  static int bio_write(BIO* bio, const char* data, size_t size, size_t* taken);
  static int bio_read(BIO* bio, char* into, size_t size, size_t* got);
  static long bio_control(BIO* bio, int command, long, void*);

 private:
  // Records the error of the last call on ssl_. Returns its errno, or EAGAIN if it must wait.
  int problem_of(int result);
  // Encrypts one record. Returns false on an error.
  bool encrypt(ConstBytes record);

  const std::shared_ptr<const OpenSslKey> key_;
  const uint64_t me_;
  const bool dialed_;
  uint64_t claimed_;
  Owned<SSL, SSL_free> ssl_;
  std::vector<std::byte> kept_;
  int fd_ = -1;  // the socket in the call under way
  int socket_errno_ = 0;
  int problem_ = 0;  // errno of the failure that has ended the connection
  bool done_ = false;
  bool at_end_ = false;     // the socket has no more input
  bool heard_ = false;      // the socket had input
  bool has_ended_ = false;  // this side has sent its notice of the end
  // OpenSSL may have input: the last read has filled its buffer, or none has followed the
  // handshake.
  bool may_have_input_ = false;
  std::string why_;
  uint64_t records_ = 0;        // encrypted with the present key
  std::vector<std::byte> out_;  // encrypted; `sent_` bytes of it are in the kernel
  size_t sent_ = 0;
  std::vector<std::byte> record_;  // a record that is made of several parts
};

// Both functions of TlsPlugin. They throw std::bad_alloc if OpenSSL cannot be used.
Result<std::shared_ptr<const TlsKey>> use_key(std::unique_ptr<SecretKey> key,
                                              const TlsOptions& options);
Result<std::shared_ptr<const TlsKey>> use_certificate(const CertificateFiles& files,
                                                      const TlsOptions& options);

}  // namespace ringdist::tls
