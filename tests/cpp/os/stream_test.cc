#include "os/stream.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "os/socket.h"
#include "os/tls_key.h"
#include "support/stream_pair.h"
#include "support/test_key.h"

namespace ringdist {
namespace {

using Suite = TlsOptions::Suite;
constexpr uint64_t kDialer = 11;
constexpr uint64_t kAcceptor = 22;

StreamPair pair_of(const TlsKey& dials, const TlsKey& accepts, uint64_t meant = kAcceptor) {
  auto [near, far] = connection();
  return {Stream(std::move(near), dials.dial(kDialer, meant)),
          Stream(std::move(far), accepts.accept(kAcceptor))};
}

// Sends `bytes` in several parts while the other side reads, and returns what arrives.
std::vector<std::byte> carry(Stream& from, Stream& to, ConstBytes bytes, size_t first_part) {
  std::vector<std::byte> out;
  std::vector<std::byte> buffer(100'000);
  size_t sent = 0;
  const TimePoint until = Clock::now() + std::chrono::seconds(50);
  while (out.size() < bytes.size() && Clock::now() < until) {
    const ConstBytes rest = bytes.subspan(sent);
    const size_t cut = std::min(first_part, rest.size());
    const auto part = [](ConstBytes one) {
      return iovec{const_cast<std::byte*>(one.data()), one.size()};
    };
    const std::array<iovec, 3> parts{part(rest.first(cut)), part({}), part(rest.subspan(cut))};
    if (!rest.empty()) {
      if (const ssize_t n = from.write(parts); n > 0)
        sent += static_cast<size_t>(n);
      else
        EXPECT_EQ(errno, EAGAIN);
    }
    EXPECT_TRUE(from.flush());
    if (const ssize_t n = to.read(buffer); n > 0)
      out.insert(out.end(), buffer.begin(), buffer.begin() + n);
    else
      EXPECT_TRUE(n < 0 && errno == EAGAIN) << n << std::strerror(errno);
  }
  return out;
}

std::vector<std::byte> digits(size_t count) {
  std::vector<std::byte> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<std::byte>(i * 7 + i / 251);
  return out;
}

void expect_carried(StreamPair& pair) {
  for (const size_t size : {1, 100, 16384, 16385, 1'000'003, 8'000'000}) {
    const auto sent = digits(size);
    EXPECT_EQ(carry(pair.dialed, pair.accepted, sent, 70), sent) << size;
    EXPECT_EQ(carry(pair.accepted, pair.dialed, sent, 40'000), sent) << size;
  }
}

TEST(Stream, CarriesBytesPlain) {
  auto [near, far] = connection();
  StreamPair pair{Stream(std::move(near)), Stream(std::move(far))};
  EXPECT_EQ(shake(pair), std::pair(0, 0));
  expect_carried(pair);
  pair.dialed.end_output();
  std::array<std::byte, 8> buffer;
  ssize_t n = -1;
  while ((n = pair.accepted.read(buffer)) < 0) ASSERT_EQ(errno, EAGAIN);
  EXPECT_EQ(n, 0);
}

TEST(Tls, CarriesBytesWithBothSuites) {
  for (const Suite suite : {Suite::kAes256, Suite::kChaCha20}) {
    TlsOptions options;
    options.suite = suite;
    StreamPair pair = pair_of(*key_of(1, options), *key_of(1));
    ASSERT_EQ(shake(pair), std::pair(0, 0));
    EXPECT_EQ(pair.dialed.peer(), kAcceptor);
    EXPECT_EQ(pair.accepted.peer(), kDialer);
    expect_carried(pair);
  }
}

TEST(Tls, ChangesItsKeysAfterSomeRecords) {
  TlsOptions options;
  options.records_per_key = 3;
  StreamPair pair = pair_of(*key_of(1, options), *key_of(1, options));
  ASSERT_EQ(shake(pair), std::pair(0, 0));
  expect_carried(pair);
}

TEST(Tls, RefusesAnotherKey) {
  StreamPair pair = pair_of(*key_of(1), *key_of(2));
  const auto [dialed, accepted] = shake(pair);
  EXPECT_EQ(dialed, EPROTO);
  EXPECT_EQ(accepted, EPROTO);
  EXPECT_EQ(pair.accepted.describe(accepted), "TLS: it has another key");
  EXPECT_EQ(pair.accepted.peer(), 0U);
}

// A connection that was led to another process, or back to the one that dialed it.
TEST(Tls, RefusesAConnectionForAnotherProcess) {
  const auto key = key_of(1);
  StreamPair redirected = pair_of(*key, *key, /*meant=*/33);
  const auto [dialed, accepted] = shake(redirected);
  EXPECT_EQ(dialed, EPROTO);
  EXPECT_EQ(redirected.accepted.describe(accepted), "TLS: it means another process");

  auto [near, far] = connection();
  StreamPair reflected{Stream(std::move(near), key->dial(kDialer, kAcceptor)),
                       Stream(std::move(far), key->accept(kDialer))};
  EXPECT_EQ(shake(reflected).second, EPROTO);
}

TEST(Tls, RefusesPlainBytes) {
  auto [near, far] = connection();
  StreamPair pair{Stream(std::move(near)), Stream(std::move(far), key_of(1)->accept(kAcceptor))};
  EXPECT_EQ(pair.dialed.write(digits(100)), 100);
  EXPECT_EQ(shake(pair).second, EPROTO);
  EXPECT_EQ(pair.accepted.describe(EPROTO), "TLS: it does not use TLS");
}

// The dialing side must not take a listener without the key for its peer.
TEST(Tls, RefusesAPlainListener) {
  auto [near, far] = connection();
  StreamPair pair{Stream(std::move(near), key_of(1)->dial(kDialer, kAcceptor)),
                  Stream(std::move(far))};
  EXPECT_EQ(pair.dialed.establish(), EAGAIN);
  EXPECT_EQ(pair.accepted.write(digits(100)), 100);
  EXPECT_EQ(shake(pair).first, EPROTO);
}

TEST(Tls, TellsAnEndFromATruncation) {
  std::array<std::byte, 8> buffer;
  for (const bool truncated : {false, true}) {
    StreamPair pair = pair_of(*key_of(1), *key_of(1));
    ASSERT_EQ(shake(pair), std::pair(0, 0));
    ASSERT_EQ(pair.dialed.write(digits(5)), 5);
    if (truncated)
      shutdown(pair.dialed.fd().get(), SHUT_WR);
    else
      pair.dialed.close();
    ssize_t n = -1;
    while ((n = pair.accepted.read(buffer)) < 0) ASSERT_EQ(errno, EAGAIN);
    EXPECT_EQ(n, 5);
    while ((n = pair.accepted.read(buffer)) < 0 && errno == EAGAIN) {
    }
    EXPECT_EQ(n, truncated ? -1 : 0);
    if (truncated) {
      EXPECT_EQ(pair.accepted.describe(errno), "TLS: the connection ended early");
    }
  }
}

TEST(Tls, RefusesChangedBytes) {
  const auto key = key_of(1);
  auto [near, middle_near] = connection();
  auto [middle_far, far] = connection();
  StreamPair pair{Stream(std::move(near), key->dial(kDialer, kAcceptor)),
                  Stream(std::move(far), key->accept(kAcceptor))};
  const auto pass_on = [](const Fd& from, const Fd& to, bool changed) {
    std::array<char, 4096> bytes;
    const ssize_t n = recv(from.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n > 0 && changed) bytes[static_cast<size_t>(n - 1)] ^= 1;
    return n > 0 && send(to.get(), bytes.data(), static_cast<size_t>(n), 0) == n;
  };
  std::pair<int, int> result(EAGAIN, EAGAIN);
  while (result.first == EAGAIN || result.second == EAGAIN) {
    if (result.first == EAGAIN) result.first = pair.dialed.establish();
    pass_on(middle_near, middle_far, false);
    if (result.second == EAGAIN) result.second = pair.accepted.handshake();
    pass_on(middle_far, middle_near, false);
  }
  ASSERT_EQ(result, std::pair(0, 0));
  ASSERT_EQ(pair.dialed.write(digits(100)), 100);
  while (!pass_on(middle_near, middle_far, true)) {
  }
  std::array<std::byte, 200> buffer;
  while (pair.accepted.read(buffer) < 0 && errno == EAGAIN) {
  }
  EXPECT_EQ(errno, EPROTO);
}

// Otherwise the key of the job would open recorded packets. The extension has one mode, psk_dhe_ke
// (RFC 8446, section 4.2.9).
TEST(Tls, OffersNoKeyExchangeByTheKeyAlone) {
  auto [near, far] = connection();
  Stream dialed(std::move(near), key_of(1)->dial(kDialer, kAcceptor));
  std::array<char, 4096> hello;
  ssize_t got = -1;
  for (const TimePoint until = Clock::now() + std::chrono::seconds(20);
       got <= 0 && Clock::now() < until;) {
    EXPECT_EQ(dialed.establish(), EAGAIN);
    got = recv(far.get(), hello.data(), hello.size(), MSG_DONTWAIT);
  }
  ASSERT_GT(got, 0);
  const std::string_view only_with_dhe("\0\x2d\0\2\1\1", 6);
  EXPECT_NE(std::string_view(hello.data(), static_cast<size_t>(got)).find(only_with_dhe),
            std::string_view::npos);
}

// OpenSSL frees its part of a thread when the thread ends.
TEST(Tls, AThreadMayEndAfterTheKeyThatItUsed) {
  mallopt(M_PERTURB, 0xA5);  // so freed memory changes
  std::promise<void> used;
  std::promise<void> freed;
  auto key = key_of(1);
  std::thread thread([&] {
    (void)key->seal(digits(8), "name");
    used.set_value();
    freed.get_future().wait();
  });
  used.get_future().wait();
  key.reset();
  freed.set_value();
  thread.join();
  mallopt(M_PERTURB, 0);
}

TEST(Tls, KeysHaveFingerprints) {
  EXPECT_EQ(key_of(1)->fingerprint(), key_of(1)->fingerprint());
  EXPECT_NE(key_of(1)->fingerprint(), key_of(2)->fingerprint());
}

// Returns the flags of the kernel for the memory at an address (proc(5), VmFlags of smaps).
std::string memory_flags(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  bool is_there = false;
  for (std::string line; std::getline(maps, line);) {
    char* rest = nullptr;
    const uintptr_t begin = strtoul(line.c_str(), &rest, 16);
    if (*rest == '-')
      is_there = begin <= reinterpret_cast<uintptr_t>(address) &&
                 reinterpret_cast<uintptr_t>(address) < strtoul(rest + 1, nullptr, 16);
    else if (is_there && line.starts_with("VmFlags:"))
      return line + " ";
  }
  return "";
}

TEST(SecretKey, IsNeitherInCoreDumpsNorInForkedChildren) {
  SecretKey key;
  std::memset(key.data(), 7, SecretKey::kBytes);
  const std::string flags = memory_flags(key.data());
  EXPECT_NE(flags.find(" dd "), std::string::npos) << flags;  // not in core dumps
  EXPECT_NE(flags.find(" wf "), std::string::npos) << flags;  // wiped by fork()
  const pid_t child = fork();
  if (child == 0) {
    const bool is_wiped =
        std::ranges::all_of(key.bytes(), [](std::byte one) { return one == std::byte{0}; });
    _exit(is_wiped ? 42 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 42);
}

// ---- Key files

std::string error_of(const std::string& file) {
  const auto key = read_tls_key({file, "", "", ""});
  return key.ok() ? "" : key.error().message();
}

TEST(KeyFile, EachFaultHasItsError) {
  std::string folder = testing::TempDir() + "ringdist-key-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string file = folder + "/key";
  const auto expect = [&](const std::string& named, const std::string& part) {
    const std::string message = error_of(named);
    EXPECT_NE(message.find("RINGDIST_KEY_FILE names " + named), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(file, "cannot be read (No such file");
  expect(folder, "is no regular file");
  std::ofstream(file) << std::string(31, 'k');
  chmod(file.c_str(), 0640);
  expect(file, "others may use, with mode 0640: run 'chmod 600");
  chmod(file.c_str(), 0600);
  expect(file, "has 31 bytes, not 32: make one with 'python -m torch_ringdist key new FILE'");
  std::ofstream(file) << std::string(32, 'k');
  EXPECT_EQ(error_of(file), "");
  if (geteuid() == 0) {
    ASSERT_EQ(chown(file.c_str(), 12345, static_cast<gid_t>(-1)), 0);
    expect(file, "belongs to user 12345");
  }
  unlink(file.c_str());
  rmdir(folder.c_str());
}

}  // namespace
}  // namespace ringdist
