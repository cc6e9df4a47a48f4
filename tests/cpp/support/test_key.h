// Keys of jobs, for tests of encryption.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>

#include "os/tls_key.h"

namespace ringdist {

// Returns a key that consists of bytes of this value.
inline std::shared_ptr<const TlsKey> key_of(int value, const TlsOptions& options = {}) {
  auto secret = std::make_unique<SecretKey>();
  std::memset(secret->data(), value, SecretKey::kBytes);
  auto key = load_tls(std::move(secret), options);
  EXPECT_TRUE(key.ok()) << key.error().message();
  return key.ok() ? key.value() : nullptr;
}

}  // namespace ringdist
