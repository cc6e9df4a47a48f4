#include "os/tls_key.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <new>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "os/bundled_library.h"
#include "os/fd.h"

namespace ringdist {
namespace {

constexpr const char* kTlsLibrary = "libringdist_tls.so";
constexpr const char* kKeyFile = "RINGDIST_KEY_FILE";
constexpr std::string_view kMakeOne = "make one with 'python -m torch_ringdist key new FILE'";
constexpr std::string_view kCheckPath = "check the path on this host, and its owner";
constexpr off_t kMostPem = 1 << 20;             // bytes of a file in PEM form
constexpr int64_t kWarnsBefore = 24 * 60 * 60;  // seconds before the end of a certificate
constexpr size_t kRanksShown = 8;

Error bad_file(const char* variable, const std::string& file, std::string_view found,
               std::string_view cure) {
  return Error(ErrorKind::kInvalidArgument, std::string(variable) + " names " + file + ", which " +
                                                std::string(found) + ": " + std::string(cure));
}

// Opens a regular file that its owner alone may change. One that is secret must also be usable by
// its owner only. `cure` is for a file
// that is missing or another kind.
Result<Fd> open_file(const char* variable, const std::string& file, bool is_secret,
                     std::string_view cure, struct stat& about) {
  Fd fd =
      Fd::open([&] { return ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); });
  if (!fd)
    return bad_file(variable, file, std::string("cannot be read (") + strerror(errno) + ")", cure);
  if (fstat(fd.get(), &about) != 0) return system_error("fstat " + file, errno);
  if (!S_ISREG(about.st_mode)) return bad_file(variable, file, "is no regular file", cure);
  // Root may provide it, as a mounted secret. Any other owner could replace it.
  if (about.st_uid != geteuid() && about.st_uid != 0)
    return bad_file(variable, file, "belongs to user " + std::to_string(about.st_uid),
                    "give it to the user that runs the ranks, with 'chown', and replace it");
  std::array<char, 8> mode{};
  snprintf(mode.data(), mode.size(), "0%o", about.st_mode & 0777U);
  constexpr unsigned kOthers = 077;
  constexpr unsigned kOthersWrite = 022;
  if (is_secret && (about.st_mode & kOthers))
    return bad_file(variable, file, std::string("others may use, with mode ") + mode.data(),
                    "run 'chmod 600 " + file + "', and replace the key if others can have read it");
  if (about.st_mode & kOthersWrite)
    return bad_file(variable, file, std::string("others may change, with mode ") + mode.data(),
                    "run 'chmod go-w " + file + "', and compare it with the original");
  return fd;
}

Error read_key(const std::string& file, SecretKey& key) {
  struct stat about{};
  const auto fd = open_file(kKeyFile, file, /*is_secret=*/true, kMakeOne, about);
  if (!fd.ok()) return fd.error();
  if (about.st_size != static_cast<off_t>(SecretKey::kBytes))
    return bad_file(kKeyFile, file, "has " + std::to_string(about.st_size) + " bytes, not 32",
                    kMakeOne);
  const ssize_t got = ::read(fd.value().get(), key.data(), SecretKey::kBytes);
  if (got < 0) return system_error("read " + file, errno);
  if (got != static_cast<ssize_t>(SecretKey::kBytes))
    return bad_file(kKeyFile, file, "ended after " + std::to_string(got) + " bytes, not 32",
                    kMakeOne);
  return {};
}

Error read_pem(const char* variable, bool is_secret, CertificateFiles::File& file) {
  struct stat about{};
  const auto fd = open_file(variable, file.name, is_secret, kCheckPath, about);
  if (!fd.ok()) return fd.error();
  if (about.st_size > kMostPem)
    return bad_file(variable, file.name, "has " + std::to_string(about.st_size) + " bytes",
                    "give a file in PEM form, which is smaller");
  file.text.resize(static_cast<size_t>(about.st_size));
  const ssize_t got = ::read(fd.value().get(), file.text.data(), file.text.size());
  if (got < 0) return system_error("read " + file.name, errno);
  file.text.resize(static_cast<size_t>(got));
  return {};
}

// Checks that either a key or all of a certificate is set.
Error check_settings(const TlsFiles& files) {
  std::string set;
  std::string missing;
  for (const auto& [name, file] :
       {std::pair("RINGDIST_CERT", &files.cert), std::pair("RINGDIST_CERT_KEY", &files.cert_key),
        std::pair("RINGDIST_CA", &files.ca)}) {
    std::string& list = file->empty() ? missing : set;
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  if (set.empty()) return {};
  if (!files.key_file.empty())
    return Error(ErrorKind::kInvalidArgument,
                 "RINGDIST_KEY_FILE and " + set +
                     " are set, but a job has a key or certificates: set one of the two");
  if (!missing.empty())
    return Error(ErrorKind::kInvalidArgument,
                 "a certificate needs RINGDIST_CERT, RINGDIST_CERT_KEY and RINGDIST_CA; not set: " +
                     missing);
  return {};
}

std::string format_time(int64_t seconds) {
  const time_t time = seconds;
  std::tm parts{};
  std::array<char, 32> out{};
  if (gmtime_r(&time, &parts) == nullptr) return "";
  (void)strftime(out.data(), out.size(), "%Y-%m-%d %H:%M UTC", &parts);
  return out.data();
}

void warn_of_end(const std::string& file, const Certificate& certificate) {
  static std::atomic<bool> warned{false};
  if (certificate.expires_at - time(nullptr) > kWarnsBefore || warned.exchange(true)) return;
  log(LogLevel::kWarn, "RINGDIST_CERT names " + file + ", which expires at " +
                           format_time(certificate.expires_at) +
                           ": no connection can begin after that; let its authority sign another");
}

Result<const TlsPlugin*> load_plugin(const char* variable) {
  const auto entry = load_bundled_symbol(kTlsLibrary, "ringdist_tls_plugin");
  if (!entry.ok())
    return Error(ErrorKind::kSystem,
                 std::string(variable) +
                     " is set, but TLS cannot be loaded: " + entry.error().message() +
                     "; install OpenSSL 3 (Debian, Ubuntu: libssl3), and build with its headers "
                     "(libssl-dev)");
  using Entry = const TlsPlugin* (*)();
  return reinterpret_cast<Entry>(entry.value())();
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

bool Certificate::allows(int rank) const { return any_rank || std::ranges::count(ranks, rank) > 0; }

std::string Certificate::describe() const {
  std::string out = "the certificate of owner '" + owner + "' for ";
  if (any_rank) return out + "any rank";
  if (ranks.empty()) return out + "no rank";
  out += ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kRanksShown); ++i)
    out += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return out + (ranks.size() > kRanksShown ? ", ..." : "");
}

Result<std::shared_ptr<const TlsKey>> load_tls(std::unique_ptr<SecretKey> key,
                                               const TlsOptions& options) {
  const auto plugin = load_plugin(kKeyFile);
  return plugin.ok() ? plugin.value()->use_key(std::move(key), options) : plugin.error();
}

Result<std::shared_ptr<const TlsKey>> load_tls(const CertificateFiles& files,
                                               const TlsOptions& options) {
  const auto plugin = load_plugin("RINGDIST_CERT");
  return plugin.ok() ? plugin.value()->use_certificate(files, options) : plugin.error();
}

Result<std::shared_ptr<const TlsKey>> read_tls_key(const TlsFiles& files) {
  if (Error error = check_settings(files)) return error;
  if (!files.key_file.empty()) {
    auto key = std::make_unique<SecretKey>();
    if (Error error = read_key(files.key_file, *key)) return error;
    return load_tls(std::move(key), TlsOptions());
  }
  if (files.cert.empty()) return std::shared_ptr<const TlsKey>();
  CertificateFiles pem{{files.cert, ""}, {files.cert_key, ""}, {files.ca, ""}};
  Error error = read_pem("RINGDIST_CERT", /*is_secret=*/false, pem.certificate);
  if (!error) error = read_pem("RINGDIST_CERT_KEY", /*is_secret=*/true, pem.key);
  if (!error) error = read_pem("RINGDIST_CA", /*is_secret=*/false, pem.authority);
  auto out = error ? Result<std::shared_ptr<const TlsKey>>(error) : load_tls(pem, TlsOptions());
  explicit_bzero(pem.key.text.data(), pem.key.text.size());
  if (out.ok()) warn_of_end(files.cert, *out.value()->certificate());
  return out;
}

}  // namespace ringdist
