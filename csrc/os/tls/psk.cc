#include "os/tls/psk.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/rand.h>

#include <algorithm>
#include <climits>
#include <string>
#include <string_view>

#include "base/serialize.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace ringdist::tls {
namespace {

constexpr std::string_view kLabel = "ringdist";
constexpr uint8_t kVersion = 1;  // version of the identity and of the derivation of keys
constexpr size_t kMostKeyBytes = 48;

constexpr std::array<Suite, 2> kSuites = {
    {{1, "SHA256", 32, "TLS_CHACHA20_POLY1305_SHA256", {0x13, 0x03}},
     {2, "SHA384", kMostKeyBytes, "TLS_AES_256_GCM_SHA384", {0x13, 0x02}}}};

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

// Without instructions for AES, ChaCha20 is faster.
const Suite& suite_to_dial(TlsOptions::Suite choice) {
  const bool aes =
      choice == TlsOptions::Suite::kByCpu ? cpu_has_aes() : choice == TlsOptions::Suite::kAes256;
  return kSuites[aes ? 1 : 0];
}

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

namespace {

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

}  // namespace

// The form is nonce, encrypted value, tag.
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

std::optional<std::vector<std::byte>> unseal(const SecretKey& key, ConstBytes sealed,
                                             std::string_view name) {
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
  return good ? std::optional(std::move(out)) : std::nullopt;
}

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

}  // namespace ringdist::tls
