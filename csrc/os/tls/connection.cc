#include "os/tls/connection.h"

#include <openssl/crypto.h>
#include <openssl/err.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "os/socket.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace ringdist::tls {
namespace {

constexpr size_t kRecord = SSL3_RT_MAX_PLAIN_LENGTH;  // bytes of a full record, 16384
// Records are sent together, because each one alone would end in a short packet.
constexpr size_t kSentTogether = 4 * kRecord;
constexpr size_t kReadAhead = size_t{64} << 10;  // bytes per recv()

bool cpu_has_aes() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
#elif defined(__aarch64__)
  constexpr unsigned long kAes = 1UL << 3;  // HWCAP_AES
  return (getauxval(AT_HWCAP) & kAes) != 0;
#else
  return false;
#endif
}

}  // namespace

OSSL_LIB_CTX* library() {
  static OSSL_LIB_CTX* const one = required(OSSL_LIB_CTX_new());
  return one;
}

OpenSslKey::OpenSslKey(const TlsOptions& options) : options_(options) {
  bio_.reset(required(BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "ringdist")));
  BIO_meth_set_write_ex(bio_.get(), OpenSslConnection::bio_write);
  BIO_meth_set_read_ex(bio_.get(), OpenSslConnection::bio_read);
  BIO_meth_set_ctrl(bio_.get(), OpenSslConnection::bio_control);
  dialing_ = make(TLS_client_method());
  accepting_ = make(TLS_server_method());
}

OpenSslKey::Context OpenSslKey::make(const SSL_METHOD* method) {
  Context out(required(SSL_CTX_new_ex(library(), nullptr, method)));
  SSL_CTX* one = out.get();
  SSL_CTX_set_options(one, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(one, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(one, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_read_ahead(one, 1);
  SSL_CTX_set_default_read_buffer_len(one, kReadAhead);
  const bool good =
      SSL_CTX_set_min_proto_version(one, TLS1_3_VERSION) == 1 &&
      SSL_CTX_set_max_proto_version(one, TLS1_3_VERSION) == 1 &&
      SSL_CTX_set_num_tickets(one, 0) == 1 && SSL_CTX_set_max_early_data(one, 0) == 1 &&
      SSL_CTX_set_ciphersuites(one, "TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256") == 1 &&
      SSL_CTX_set1_groups_list(one, "X25519:P-256") == 1;
  if (!good) throw std::bad_alloc();
  return out;
}

std::unique_ptr<TlsConnection> OpenSslKey::dial(uint64_t me, uint64_t peer) const {
  return std::make_unique<OpenSslConnection>(shared_from_this(), me, peer);
}

std::unique_ptr<TlsConnection> OpenSslKey::accept(uint64_t me) const {
  return std::make_unique<OpenSslConnection>(shared_from_this(), me, 0);
}

// Without instructions for AES, ChaCha20 is faster.
const Suite& OpenSslKey::suite() const {
  using Choice = TlsOptions::Suite;
  const bool aes =
      options_.suite == Choice::kByCpu ? cpu_has_aes() : options_.suite == Choice::kAes256;
  return kSuites[aes ? 1 : 0];
}

OpenSslConnection::OpenSslConnection(std::shared_ptr<const OpenSslKey> key, uint64_t me,
                                     uint64_t peer)
    : key_(std::move(key)),
      me_(me),
      dialed_(peer != 0),
      claimed_(peer),
      ssl_(required(SSL_new(key_->context(peer != 0)))) {
  BIO* const bio = required(BIO_new(key_->bio()));
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_app_data(ssl_.get(), this);
  (dialed_ ? SSL_set_connect_state : SSL_set_accept_state)(ssl_.get());
  if (!dialed_) return;
  if (SSL_set_ciphersuites(ssl_.get(), key_->suite().name) != 1) throw std::bad_alloc();
  key_->begin(*this);
}

bool OpenSslConnection::claim(uint64_t from, uint64_t to) {
  if (to != me_ || from == me_ || from == 0) {
    refuse("it means another process");
    return false;
  }
  claimed_ = from;
  return true;
}

// ---- Called by OpenSSL, so nothing throws

int OpenSslConnection::bio_write(BIO* bio, const char* data, size_t size, size_t* taken) try {
  auto& self = *static_cast<OpenSslConnection*>(BIO_get_data(bio));
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  self.out_.insert(self.out_.end(), bytes, bytes + size);
  *taken = size;
  return 1;
} catch (const std::bad_alloc&) {
  return 0;
}

int OpenSslConnection::bio_read(BIO* bio, char* into, size_t size, size_t* got) {
  auto& self = *static_cast<OpenSslConnection*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const ssize_t n = recv(self.fd_, into, size, MSG_DONTWAIT);
  if (n < 0 && passes(errno))
    BIO_set_retry_read(bio);
  else if (n < 0)
    self.socket_errno_ = errno;
  self.at_end_ = n == 0;
  self.heard_ |= n > 0;
  *got = n > 0 ? static_cast<size_t>(n) : 0;
  return n > 0 ? 1 : 0;
}

long OpenSslConnection::bio_control(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return static_cast<OpenSslConnection*>(BIO_get_data(bio))->at_end_;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

// ---- Calls of Stream

int OpenSslConnection::problem_of(int result) {
  const int error = SSL_get_error(ssl_.get(), result);
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return EAGAIN;
  const unsigned long first = ERR_peek_error();
  ERR_clear_error();
  problem_ = socket_errno_ != 0 ? socket_errno_ : at_end_ && !heard_ ? ECONNRESET : EPROTO;
  const int reason = ERR_GET_REASON(first);
  if (at_end_)
    why_ = heard_ ? "the connection ended early" : "";
  else if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST)
    why_ = "it does not use TLS";
  else if (why_.empty())
    why_ = key_->explain(*this, reason);
  if (const char* text = first != 0 ? ERR_reason_error_string(first) : nullptr;
      why_.empty() && !at_end_)
    why_ = text != nullptr ? text : "failed";
  return problem_;
}

int OpenSslConnection::handshake(int fd) {
  if (problem_ != 0) return problem_;
  fd_ = fd;
  if (!done_) {
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl_.get());
    const int problem = result == 1 ? 0 : problem_of(result);
    if (!flush(fd)) return errno;  // an alert, too
    if (problem != 0) return problem;
    if (!key_->is_proven(*this)) {
      why_ = "the handshake has proven nothing";
      return problem_ = EPROTO;
    }
    done_ = may_have_input_ = true;
  }
  if (!flush(fd)) return errno;
  return has_output() ? EAGAIN : 0;
}

ssize_t OpenSslConnection::read(int fd, Bytes into) {
  fd_ = fd;
  size_t got = 0;
  int problem = done_ ? problem_ : handshake(fd);
  while (problem == 0 && got < into.size()) {
    size_t n = 0;
    ERR_clear_error();
    const int result = SSL_read_ex(ssl_.get(), into.data() + got, into.size() - got, &n);
    got += n;
    if (result == 1) continue;
    if (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) break;
    problem = problem_of(result);
  }
  may_have_input_ = problem == 0 && got == into.size();
  if (got > 0) return static_cast<ssize_t>(got);  // an error comes again
  if (problem == 0) return 0;                     // the end, or no room in `into`
  errno = problem;
  return -1;
}

bool OpenSslConnection::encrypt(ConstBytes record) {
  ERR_clear_error();
  if (records_ >= key_->options().records_per_key) {
    if (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1) return false;
    records_ = 0;
  }
  size_t n = 0;
  ++records_;
  return SSL_write_ex(ssl_.get(), record.data(), record.size(), &n) == 1;
}

// While encrypted bytes wait for the socket, no others are taken.
ssize_t OpenSslConnection::write(int fd, std::span<const iovec> parts) {
  fd_ = fd;
  size_t taken = 0;
  size_t part = 0;
  size_t skip = 0;  // bytes of parts[part] that were taken
  const auto rest = [&] {
    return ConstBytes(static_cast<const std::byte*>(parts[part].iov_base), parts[part].iov_len)
        .subspan(skip);
  };
  if (!flush(fd)) return -1;
  while (!has_output()) {
    while (!has_output() || out_.size() - sent_ < kSentTogether) {
      while (part < parts.size() && rest().empty()) ++part, skip = 0;
      if (part == parts.size()) break;
      ConstBytes record = rest().first(std::min(rest().size(), kRecord));
      skip += record.size();
      if (record.size() < kRecord && part + 1 < parts.size()) {
        record_.assign(record.begin(), record.end());
        for (++part, skip = 0; part < parts.size() && record_.size() < kRecord; ++part, skip = 0) {
          const ConstBytes more = rest().first(std::min(rest().size(), kRecord - record_.size()));
          record_.insert(record_.end(), more.begin(), more.end());
          skip = more.size();
          if (!rest().empty()) break;
        }
        record = record_;
      }
      if (!encrypt(record)) {
        errno = problem_of(0);
        return -1;
      }
      taken += record.size();
    }
    if (!has_output()) break;
    if (!flush(fd)) return -1;
  }
  if (taken > 0) return static_cast<ssize_t>(taken);
  errno = EAGAIN;
  return -1;
}

bool OpenSslConnection::flush(int fd) {
  while (has_output()) {
    const ssize_t n =
        send(fd, out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && passes(errno)) return true;
    if (n < 0) {
      problem_ = errno;
      return false;
    }
    sent_ += static_cast<size_t>(n);
  }
  out_.clear();
  sent_ = 0;
  return true;
}

void OpenSslConnection::end_output(int fd) {
  if (!done_ || problem_ != 0 || has_output() || std::exchange(has_ended_, true)) return;
  fd_ = fd;
  ERR_clear_error();
  (void)SSL_shutdown(ssl_.get());
  (void)flush(fd);
  ERR_clear_error();
}

namespace {

template <typename Make>
Result<std::shared_ptr<const TlsKey>> guarded(const Make& make) {
  // Other threads may still be at work when the program exits. If Python uses OpenSSL, too, this
  // comes too late, so those threads end before.
  OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  try {
    return make();
  } catch (const std::bad_alloc&) {
    const char* text = ERR_reason_error_string(ERR_peek_error());
    return Error(ErrorKind::kSystem,
                 std::string("OpenSSL cannot be used: ") + (text != nullptr ? text : "no memory"));
  }
}

constexpr TlsPlugin kPlugin = {[](std::unique_ptr<SecretKey> key, const TlsOptions& options) {
                                 return guarded([&] { return use_key(std::move(key), options); });
                               },
                               [](const CertificateFiles& files, const TlsOptions& options) {
                                 return guarded([&] { return use_certificate(files, options); });
                               }};

}  // namespace
}  // namespace ringdist::tls

extern "C" __attribute__((visibility("default"))) const ringdist::TlsPlugin* ringdist_tls_plugin() {
  return &ringdist::tls::kPlugin;
}
