// Credentials of a process, which are the key of a job or a certificate, and the entry of
// libringdist_tls.so, which implements TLS by the system's OpenSSL. That library is loaded when
// they are set, so no other process maps OpenSSL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffers.h"
#include "base/config.h"
#include "base/error.h"
#include "os/stream.h"

namespace ringdist {

// Id of every store in handshakes, of which it is the accepting side. No certificate is bound to
// it. Its bytes are "rd-store".
inline constexpr uint64_t kStoreId = 0x65726f74732d6472ull;

// Certificate of a member, as others see it. A value.
struct Certificate {
  std::string owner;       // common name
  std::vector<int> ranks;  // ranks that may use it, in ascending order
  bool any_rank = false;   // it is for all ranks
  uint32_t id_bits = 0;    // upper half of the ids of its processes
  int64_t expires_at = 0;  // Unix time in seconds

  bool has_ranks() const { return any_rank || !ranks.empty(); }
  bool allows(int rank) const;
  // Returns true if a process with this context id may have the certificate.
  bool fits(uint64_t context_id) const { return context_id >> 32 == id_bits; }
  // Returns "the certificate of owner 'b' for rank 2".
  std::string describe() const;
};

// A sealed value, and the certificate that has signed it; nothing with a key.
struct Unsealed {
  std::vector<std::byte> value;
  std::optional<Certificate> signer;
};

// Credentials of a process: the key of a job, from which the keys of connections are derived, or a
// certificate. With a certificate, the ids of a process begin with bits of it. So a process that
// proves its certificate cannot claim the id of another one. Any thread.
class TlsKey {
 public:
  // Use of values with a signature by a certificate that has expired.
  enum class Expired : uint8_t { kRefused, kAllowed };

  virtual ~TlsKey() = default;
  // Makes a connection with `peer`, for the side that has dialed. `me` and `peer` are context ids.
  virtual std::unique_ptr<TlsConnection> dial(uint64_t me, uint64_t peer) const = 0;
  // Makes a connection for the side that has accepted. The dialing side names itself and must mean
  // `me`.
  virtual std::unique_ptr<TlsConnection> accept(uint64_t me) const = 0;
  // Draws the context id of a process with these credentials. It is random and never 0.
  virtual uint64_t draw_id() const = 0;
  // Returns the certificate of this process; null with a key.
  virtual const Certificate* certificate() const = 0;
  // Returns a number that identifies the key, or the certificate's authority, and reveals nothing
  // that is of use. It is never 0.
  virtual uint64_t fingerprint() const = 0;
  // Binds a value to a name. A key encrypts it (AES-256-GCM with a random nonce), and a certificate
  // signs it. Throws std::bad_alloc.
  virtual std::vector<std::byte> seal(ConstBytes value, std::string_view name) const = 0;
  // Returns the value of bytes that seal() has made for this name, with the same key or a
  // certificate of the same authority; nothing for others.
  virtual std::optional<Unsealed> unseal(ConstBytes sealed, std::string_view name,
                                         Expired expired) const = 0;
};

// Memory of a key. Core dumps and forked children do not get it, and it is cleared at the end.
class SecretKey {
 public:
  static constexpr size_t kBytes = 32;

  SecretKey();
  ~SecretKey();
  SecretKey(const SecretKey&) = delete;
  SecretKey& operator=(const SecretKey&) = delete;

  std::byte* data() { return bytes_; }
  ConstBytes bytes() const { return {bytes_, kBytes}; }

 private:
  std::byte* bytes_ = nullptr;
};

// Files with PEM texts.
struct CertificateFiles {
  struct File {
    std::string name;
    std::string text;
  };
  File certificate;
  File key;        // its private key
  File authority;  // the certificate of the authority that has signed it
};

// Limits and choices that tests change.
struct TlsOptions {
  enum class Suite : uint8_t { kByCpu, kAes256, kChaCha20 };
  Suite suite = Suite::kByCpu;  // the suite when this process dials
  // Records after which a direction gets another key. AES-GCM is safe for 2^24.5 (RFC 8446).
  uint64_t records_per_key = uint64_t{1} << 23;
};

// Functions of the library. Its ringdist_tls_plugin() returns their address.
struct TlsPlugin {
  Result<std::shared_ptr<const TlsKey>> (*use_key)(std::unique_ptr<SecretKey> key,
                                                   const TlsOptions& options);
  Result<std::shared_ptr<const TlsKey>> (*use_certificate)(const CertificateFiles& files,
                                                           const TlsOptions& options);
};

// Loads the library for TLS. Any thread. Error: kSystem, it or OpenSSL is missing or fails. For a
// certificate also kInvalidArgument, if the files do not fit each other.
Result<std::shared_ptr<const TlsKey>> load_tls(std::unique_ptr<SecretKey> key,
                                               const TlsOptions& options);
Result<std::shared_ptr<const TlsKey>> load_tls(const CertificateFiles& files,
                                               const TlsOptions& options);
// Reads the credentials that are set: the key of a job of 32 bytes, or a certificate. A file with a
// secret must be a regular one that only its owner may use. Then loads the library. Returns null if
// none are set. Warns, once, if the certificate expires within a day. Any thread. Errors:
// kInvalidArgument about the settings and the files, and those of load_tls().
Result<std::shared_ptr<const TlsKey>> read_tls_key(const TlsFiles& files);

}  // namespace ringdist
