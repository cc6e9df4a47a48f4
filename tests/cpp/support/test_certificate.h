// Certificates of the folder support/certificates, for tests. Those of `a` and `stranger` are for
// rank 1, that of `b` for ranks 2 and 5, that of `any` for all ranks, and that of `unranked` for
// none. `expired` has been for rank 1. An authority `ca` has signed all but `stranger`.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "os/tls_key.h"
#include "support/source_folder.h"

namespace ringdist {

// Returns a file of the folder, such as "a.pem".
inline CertificateFiles::File pem_file(const std::string& name) {
  std::ifstream in(source_folder() / "tests/cpp/support/certificates" / name);
  return {name, std::string(std::istreambuf_iterator<char>(in), {})};
}

inline Result<std::shared_ptr<const TlsKey>> load_certificate(const std::string& name,
                                                              const std::string& authority = "ca",
                                                              const TlsOptions& options = {}) {
  return load_tls({pem_file(name + ".pem"), pem_file(name + ".key"), pem_file(authority + ".pem")},
                  options);
}

// Returns the credentials of a process with that certificate.
inline std::shared_ptr<const TlsKey> certificate_of(const std::string& name,
                                                    const std::string& authority = "ca",
                                                    const TlsOptions& options = {}) {
  auto out = load_certificate(name, authority, options);
  EXPECT_TRUE(out.ok()) << out.error().message();
  return out.ok() ? out.value() : nullptr;
}

}  // namespace ringdist
