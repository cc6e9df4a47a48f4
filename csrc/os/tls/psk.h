// Keys of connections (pre-shared keys of TLS), which are derived from the key of the job.
#pragma once

#include <openssl/ssl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/buffers.h"
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
// Returns the suite for connections that this process dials.
const Suite& suite_to_dial(TlsOptions::Suite choice);

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

// Derives `out` from the key by HKDF (RFC 5869). Returns false without memory.
bool derive(const SecretKey& key, const char* digest, ConstBytes info, std::span<uint8_t> out);
// These are the functions of TlsKey.
std::vector<std::byte> seal(const SecretKey& key, ConstBytes value, std::string_view name);
std::optional<std::vector<std::byte>> unseal(const SecretKey& key, ConstBytes sealed,
                                             std::string_view name);
// Returns the key of a connection in the form that OpenSSL needs, or null without memory.
SSL_SESSION* derive_psk(const SecretKey& key, const Identity& identity, SSL* ssl);

}  // namespace ringdist::tls
