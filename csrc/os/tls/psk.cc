// Keys of connections (pre-shared keys of TLS), which are derived from the key of the job and used
// with an ephemeral key exchange. The key of a connection is bound to both context ids and to the
// direction of the dial, so a connection that is redirected or reflected fails in its handshake.
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/rand.h>

#include <algorithm>
#include <climits>
#include <optional>
#include <string_view>
#include <utility>

#include "base/serialize.h"
#include "os/random.h"
#include "os/tls/connection.h"

namespace ringdist::tls {
namespace {

constexpr std::string_view kLabel = "ringdist";
constexpr uint8_t kVersion = 1;  // version of the identity and of the derivation of keys

// Name of the key of a connection. It is sent in the clear, and the key is derived from it. So the
// key is bound to both processes and to the direction of the dial.
struct Identity {
  const Suite* suite = nullptr;
  uint64_t from = 0;  // the side that has dialed
  uint64_t to = 0;

  std::vector<std::byte> encode() const;
  // Returns false for bytes that encode() has not made.
  bool decode(ConstBytes bytes);
};

std::vector<std::byte> Identity::encode() const {
  return Writer().put_string(kLabel).put(kVersion).put(suite->hash).put(from).put(to).take();
}

bool Identity::decode(ConstBytes bytes) {
  Reader in(bytes);
  const std::string label = in.get_text(kLabel.size());
  const auto version = in.get<uint8_t>();
  const auto hash = in.get<uint8_t>();
  from = in.get<uint64_t>();
  to = in.get<uint64_t>();
  const auto* found = std::ranges::find(kSuites, hash, &Suite::hash);
  if (!in.ended() || label != kLabel || version != kVersion || found == kSuites.end()) return false;
  suite = found;
  return true;
}

// Derives `out` from the key by HKDF (RFC 5869). Returns false without memory.
bool derive(const SecretKey& key, const char* digest, ConstBytes info, std::span<uint8_t> out) {
  const Owned<EVP_KDF, EVP_KDF_free> kdf(EVP_KDF_fetch(library(), "HKDF", nullptr));
  const Owned<EVP_KDF_CTX, EVP_KDF_CTX_free> state(EVP_KDF_CTX_new(kdf.get()));
  if (!state) return false;
  const auto octets = [](const char* name, ConstBytes bytes) {
    return OSSL_PARAM_construct_octet_string(name, const_cast<std::byte*>(bytes.data()),
                                             bytes.size());
  };
  const std::array<OSSL_PARAM, 4> parameters = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, const_cast<char*>(digest), 0),
      octets(OSSL_KDF_PARAM_KEY, key.bytes()), octets(OSSL_KDF_PARAM_INFO, info),
      OSSL_PARAM_construct_end()};
  return EVP_KDF_derive(state.get(), out.data(), out.size(), parameters.data()) == 1;
}

// Sizes of AES-256-GCM (NIST SP 800-38D).
constexpr size_t kSealKeyBytes = 32;
constexpr size_t kNonceBytes = 12;
constexpr size_t kTagBytes = 16;

using Cipher = Owned<EVP_CIPHER_CTX, EVP_CIPHER_CTX_free>;

// Begins AES-256-GCM with the key for values of the store. Returns null without memory.
Cipher begin_cipher(const SecretKey& key, const uint8_t* nonce, std::string_view name,
                    bool encrypts) {
  static constexpr std::string_view kInfo = "ringdist store";
  std::array<uint8_t, kSealKeyBytes> bytes{};
  const Owned<EVP_CIPHER, EVP_CIPHER_free> cipher(
      EVP_CIPHER_fetch(library(), "AES-256-GCM", nullptr));
  Cipher out(EVP_CIPHER_CTX_new());
  int n = 0;
  const auto* text = reinterpret_cast<const uint8_t*>(name.data());
  const bool good =
      cipher && out && derive(key, "SHA256", std::as_bytes(std::span(kInfo)), bytes) &&
      EVP_CipherInit_ex2(out.get(), cipher.get(), bytes.data(), nonce, encrypts ? 1 : 0, nullptr) ==
          1 &&
      EVP_CipherUpdate(out.get(), nullptr, &n, text, static_cast<int>(name.size())) == 1;
  OPENSSL_cleanse(bytes.data(), bytes.size());
  return good ? std::move(out) : nullptr;
}

// Seals as TlsKey::seal(). The form is nonce, encrypted value, tag.
std::vector<std::byte> seal(const SecretKey& key, ConstBytes value, std::string_view name) {
  std::vector<std::byte> out(kNonceBytes + value.size() + kTagBytes);
  auto* const bytes = reinterpret_cast<uint8_t*>(out.data());
  if (value.size() > INT_MAX || RAND_bytes_ex(library(), bytes, kNonceBytes, 0) != 1)
    throw std::bad_alloc();
  const Cipher state = begin_cipher(key, bytes, name, /*encrypts=*/true);
  int n = 0;
  const bool good = state &&
                    EVP_CipherUpdate(state.get(), bytes + kNonceBytes, &n,
                                     reinterpret_cast<const uint8_t*>(value.data()),
                                     static_cast<int>(value.size())) == 1 &&
                    EVP_CipherFinal_ex(state.get(), bytes + kNonceBytes + n, &n) == 1 &&
                    EVP_CIPHER_CTX_ctrl(state.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes,
                                        bytes + kNonceBytes + value.size()) == 1;
  if (!good) throw std::bad_alloc();
  return out;
}

std::optional<Unsealed> unseal(const SecretKey& key, ConstBytes sealed, std::string_view name) {
  if (sealed.size() < kNonceBytes + kTagBytes || sealed.size() > INT_MAX) return std::nullopt;
  const auto* bytes = reinterpret_cast<const uint8_t*>(sealed.data());
  const size_t size = sealed.size() - kNonceBytes - kTagBytes;
  std::vector<std::byte> out(size);
  auto* const into = reinterpret_cast<uint8_t*>(out.data());
  const Cipher state = begin_cipher(key, bytes, name, /*encrypts=*/false);
  int n = 0;
  const bool good =
      state &&
      EVP_CipherUpdate(state.get(), into, &n, bytes + kNonceBytes, static_cast<int>(size)) == 1 &&
      EVP_CIPHER_CTX_ctrl(state.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes,
                          const_cast<uint8_t*>(bytes + kNonceBytes + size)) == 1 &&
      EVP_CipherFinal_ex(state.get(), into + n, &n) == 1;
  ERR_clear_error();
  if (!good) return std::nullopt;
  return Unsealed{std::move(out), std::nullopt};
}

// Returns the key of a connection in the form that OpenSSL needs, or null without memory.
SSL_SESSION* derive_psk(const SecretKey& key, const Identity& identity, SSL* ssl) {
  std::array<uint8_t, kMostKeyBytes> bytes{};
  const std::span<uint8_t> psk = std::span(bytes).first(identity.suite->key_bytes);
  Owned<SSL_SESSION, SSL_SESSION_free> out(SSL_SESSION_new());
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, identity.suite->code.data());
  const bool good = out && cipher != nullptr &&
                    derive(key, identity.suite->digest, identity.encode(), psk) &&
                    SSL_SESSION_set1_master_key(out.get(), psk.data(), psk.size()) == 1 &&
                    SSL_SESSION_set_cipher(out.get(), cipher) == 1 &&
                    SSL_SESSION_set_protocol_version(out.get(), TLS1_3_VERSION) == 1;
  OPENSSL_cleanse(bytes.data(), bytes.size());
  return good ? out.release() : nullptr;
}

class JobKey final : public OpenSslKey {
 public:
  JobKey(std::unique_ptr<SecretKey> key, const TlsOptions& options)
      : OpenSslKey(options), secret_(std::move(key)) {
    SSL_CTX_set_psk_use_session_callback(context(/*dials=*/true), use_psk);
    SSL_CTX_set_psk_find_session_callback(context(/*dials=*/false), find_psk);
    // No certificate is trusted, so a peer without the key cannot offer one instead.
    SSL_CTX_set_verify(context(/*dials=*/true), SSL_VERIFY_PEER, nullptr);
    static constexpr std::string_view kPrint = "ringdist fingerprint";
    const std::span out(reinterpret_cast<uint8_t*>(&fingerprint_), sizeof fingerprint_);
    if (!derive(*secret_, "SHA256", std::as_bytes(std::span(kPrint)), out)) throw std::bad_alloc();
    fingerprint_ += fingerprint_ == 0;
  }

  uint64_t draw_id() const override { return random_id(); }
  const Certificate* certificate() const override { return nullptr; }
  uint64_t fingerprint() const override { return fingerprint_; }
  std::vector<std::byte> seal(ConstBytes value, std::string_view name) const override {
    return tls::seal(*secret_, value, name);
  }
  std::optional<Unsealed> unseal(ConstBytes sealed, std::string_view name, Expired) const override {
    return tls::unseal(*secret_, sealed, name);
  }
  bool is_proven(const OpenSslConnection& connection) const override {
    return SSL_session_reused(connection.ssl()) == 1;
  }
  std::string explain(const OpenSslConnection& connection, int reason) const override {
    if (reason == SSL_R_BINDER_DOES_NOT_VERIFY) return "it has another key";
    const bool names_no_key =
        !connection.is_done() && !connection.dialed() && connection.claimed() == 0;
    return names_no_key && reason == SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM ? "it has no key" : "";
  }

 private:
  // Functions that OpenSSL calls for the key of either side. Nothing throws.
  static int use_psk(SSL* ssl, const EVP_MD* md, const unsigned char** id, size_t* id_bytes,
                     SSL_SESSION** out);
  static int find_psk(SSL* ssl, const unsigned char* id, size_t id_bytes, SSL_SESSION** out);

  const std::unique_ptr<SecretKey> secret_;
  uint64_t fingerprint_ = 0;
};

int JobKey::use_psk(SSL* ssl, const EVP_MD*, const unsigned char** id, size_t* id_bytes,
                    SSL_SESSION** out) try {
  OpenSslConnection& self = OpenSslConnection::of(ssl);
  const auto& key = static_cast<const JobKey&>(self.key());
  const Identity identity{&key.suite(), self.me(), self.claimed()};
  const auto& bytes = self.keep(identity.encode());
  *id = reinterpret_cast<const unsigned char*>(bytes.data());
  *id_bytes = bytes.size();
  *out = derive_psk(*key.secret_, identity, ssl);
  return *out != nullptr;
} catch (const std::bad_alloc&) {
  return 0;
}

int JobKey::find_psk(SSL* ssl, const unsigned char* id, size_t id_bytes, SSL_SESSION** out) try {
  OpenSslConnection& self = OpenSslConnection::of(ssl);
  *out = nullptr;
  Identity identity;
  if (!identity.decode(std::as_bytes(std::span(id, id_bytes)))) return 1;
  if (!self.claim(identity.from, identity.to)) return 1;
  *out = derive_psk(*static_cast<const JobKey&>(self.key()).secret_, identity, ssl);
  return *out != nullptr;
} catch (const std::bad_alloc&) {
  return 0;
}

}  // namespace

Result<std::shared_ptr<const TlsKey>> use_key(std::unique_ptr<SecretKey> key,
                                              const TlsOptions& options) {
  return std::shared_ptr<const TlsKey>(std::make_shared<JobKey>(std::move(key), options));
}

}  // namespace ringdist::tls
