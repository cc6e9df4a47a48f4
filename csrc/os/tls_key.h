// The key of a job, and the entry of libringdist_tls.so, which implements TLS by the system's
// OpenSSL. That library is loaded when a key is set, so no other process maps OpenSSL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffers.h"
#include "base/error.h"
#include "os/stream.h"

namespace ringdist {

// The key of a job, from which the keys of connections are derived. Any thread.
class TlsKey {
 public:
  virtual ~TlsKey() = default;
  // Makes a connection with `peer`, for the side that has dialed. `me` and `peer` are context ids.
  virtual std::unique_ptr<TlsConnection> dial(uint64_t me, uint64_t peer) const = 0;
  // Makes a connection for the side that has accepted. The dialing side names itself and must mean
  // `me`.
  virtual std::unique_ptr<TlsConnection> accept(uint64_t me) const = 0;
  // Returns a number that identifies the key and reveals nothing that is of use. It is never 0.
  virtual uint64_t fingerprint() const = 0;
  // Encrypts a value and binds it to a name (AES-256-GCM with a random nonce). Throws
  // std::bad_alloc.
  virtual std::vector<std::byte> seal(ConstBytes value, std::string_view name) const = 0;
  // Returns the value of the bytes that seal() has made for this name, or nothing for others.
  virtual std::optional<std::vector<std::byte>> unseal(ConstBytes sealed,
                                                       std::string_view name) const = 0;
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

// Limits and choices that tests change.
struct TlsOptions {
  enum class Suite : uint8_t { kByCpu, kAes256, kChaCha20 };
  Suite suite = Suite::kByCpu;  // the suite when this process dials
  // Records after which a direction gets another key. AES-GCM is safe for 2^24.5 (RFC 8446).
  uint64_t records_per_key = uint64_t{1} << 23;
};

// Type of the function that ringdist_tls_plugin() of the library returns. Error: kSystem.
using TlsPlugin = Result<std::shared_ptr<const TlsKey>> (*)(std::unique_ptr<SecretKey> key,
                                                            const TlsOptions& options);

// Loads the library for TLS. Any thread. Error: kSystem, it or OpenSSL is missing or fails.
Result<std::shared_ptr<const TlsKey>> load_tls(std::unique_ptr<SecretKey> key,
                                               const TlsOptions& options);
// Reads the key of a job from a file: 32 bytes, in a regular file that only its owner may use. Then
// loads the library. Any thread. Errors: kInvalidArgument about the file, and those of load_tls().
Result<std::shared_ptr<const TlsKey>> read_tls_key(const std::string& file);

}  // namespace ringdist
