#include "os/tls_key.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>

#include "os/bundled_library.h"
#include "os/fd.h"

namespace ringdist {
namespace {

constexpr const char* kTlsLibrary = "libringdist_tls.so";
constexpr std::string_view kMakeOne = "make one with 'python -m torch_ringdist key new FILE'";

Error bad_key(const std::string& file, std::string_view found, std::string_view cure) {
  return Error(ErrorKind::kInvalidArgument, "RINGDIST_KEY_FILE names " + file + ", which " +
                                                std::string(found) + ": " + std::string(cure));
}

// One byte more than a key has is read, so that a longer file is found out.
Error read_key(const std::string& file, SecretKey& key) {
  const Fd fd =
      Fd::open([&] { return ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); });
  if (!fd) return bad_key(file, std::string("cannot be read (") + strerror(errno) + ")", kMakeOne);
  struct stat about{};
  if (fstat(fd.get(), &about) != 0) return system_error("fstat " + file, errno);
  if (!S_ISREG(about.st_mode)) return bad_key(file, "is no regular file", kMakeOne);
  // Root may provide it, as a mounted secret. Any other owner could replace it.
  if (about.st_uid != geteuid() && about.st_uid != 0)
    return bad_key(file, "belongs to user " + std::to_string(about.st_uid),
                   "give it to the user that runs the ranks, with 'chown', and replace it");
  constexpr unsigned kOthers = 077;
  if (about.st_mode & kOthers) {
    std::array<char, 8> mode{};
    snprintf(mode.data(), mode.size(), "0%o", about.st_mode & 0777U);
    return bad_key(file, std::string("others may use, with mode ") + mode.data(),
                   "run 'chmod 600 " + file + "', and replace the key if others can have read it");
  }
  if (about.st_size != static_cast<off_t>(SecretKey::kBytes))
    return bad_key(file, "has " + std::to_string(about.st_size) + " bytes, not 32", kMakeOne);
  const ssize_t got = ::read(fd.get(), key.data(), SecretKey::kBytes);
  if (got < 0) return system_error("read " + file, errno);
  if (got != static_cast<ssize_t>(SecretKey::kBytes))
    return bad_key(file, "ended after " + std::to_string(got) + " bytes, not 32", kMakeOne);
  return {};
}

}  // namespace

// A page of its own, which neither core dumps nor forked children get.
SecretKey::SecretKey() {
  void* page = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::bad_alloc();
  bytes_ = static_cast<std::byte*>(page);
  madvise(page, kBytes, MADV_DONTDUMP);
  madvise(page, kBytes, MADV_WIPEONFORK);
}

SecretKey::~SecretKey() {
  explicit_bzero(bytes_, kBytes);
  munmap(bytes_, kBytes);
}

Result<std::shared_ptr<const TlsKey>> load_tls(std::unique_ptr<SecretKey> key,
                                               const TlsOptions& options) {
  const auto entry = load_bundled_symbol(kTlsLibrary, "ringdist_tls_plugin");
  if (!entry.ok())
    return Error(ErrorKind::kSystem,
                 "RINGDIST_KEY_FILE is set, but TLS cannot be loaded: " + entry.error().message() +
                     "; install OpenSSL 3 (Debian, Ubuntu: libssl3), and build with its headers "
                     "(libssl-dev)");
  using Entry = TlsPlugin (*)();
  return reinterpret_cast<Entry>(entry.value())()(std::move(key), options);
}

Result<std::shared_ptr<const TlsKey>> read_tls_key(const std::string& file) {
  auto key = std::make_unique<SecretKey>();
  if (Error error = read_key(file, *key)) return error;
  return load_tls(std::move(key), TlsOptions());
}

}  // namespace ringdist
