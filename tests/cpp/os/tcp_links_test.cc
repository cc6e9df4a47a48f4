#include "os/tcp_links.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "os/socket.h"

namespace ringdist {
namespace {

// Returns the row from one address to another.
std::optional<LinkProgress> find(const std::vector<LinkProgress>& rows, const std::string& local,
                                 const std::string& remote) {
  const auto row = std::ranges::find_if(
      rows, [&](const auto& one) { return one.local == local && one.remote == remote; });
  return row == rows.end() ? std::nullopt : std::optional(*row);
}

// A connection from `source`, or from an address that the kernel chooses, to 127.0.0.1.
struct Connection {
  explicit Connection(const std::string& source)
      : dialed(connect_tcp(local_address(listener).value(), source)) {
    while (!accepted) accepted = accept_connection(listener);
  }

  const Fd listener = std::move(listen_tcp("127.0.0.1", 0).value());
  const ConnectAttempt dialed;
  Fd accepted;
};

// Calls read() until the other end has confirmed 100000 bytes. Returns the bytes of all calls.
uint64_t confirmed(TcpLinks& links) {
  uint64_t out = 0;
  for (const TimePoint until = Clock::now() + std::chrono::seconds(20);
       out < 100'000 && Clock::now() < until;) {
    const auto row = find(links.read(64), "127.0.0.2", "127.0.0.1");
    out += row ? row->bytes : 0;
  }
  return out;
}

// Addresses of the loopback stand for those of two hosts.
TEST(TcpLinks, HasWhatOtherHostsHaveConfirmedSinceTheLastCall) {
  TcpLinks links;
  const Connection connection("127.0.0.2");
  std::vector<char> data(100'000);
  const auto send_all = [&] {
    for (size_t done = 0, read = 0; read < data.size();) {
      if (const ssize_t n = ::send(connection.dialed.fd.get(), data.data(), data.size() - done, 0);
          n > 0)
        done += static_cast<size_t>(n);
      if (const ssize_t n = recv(connection.accepted.get(), data.data(), data.size(), MSG_DONTWAIT);
          n > 0)
        read += static_cast<size_t>(n);
    }
  };
  EXPECT_TRUE(find(links.read(64), "127.0.0.2", "127.0.0.1"));  // a SYN counts as a byte
  send_all();
  EXPECT_EQ(confirmed(links), 100'000u);
  const int copy = dup(connection.dialed.fd.get());  // counts once
  send_all();
  EXPECT_EQ(confirmed(links), 100'000u);
  const auto rows = links.read(64);
  close(copy);
  const auto there = find(rows, "127.0.0.2", "127.0.0.1");
  ASSERT_TRUE(there);
  EXPECT_EQ(there->bytes, 0u) << "nothing since the last call";
  EXPECT_GT(there->rtt, 0u);
  const auto back = find(rows, "127.0.0.1", "127.0.0.2");
  ASSERT_TRUE(back);
  EXPECT_EQ(back->bytes, 0u);
}

// A receiver that reads late makes no link slow.
TEST(TcpLinks, ATimeWithoutRoomAtTheOtherEndIsNotBusy) {
  TcpLinks links;
  const Connection connection("127.0.0.2");
  const std::vector<char> data(1 << 20);
  const TimePoint until = Clock::now() + std::chrono::milliseconds(300);
  while (Clock::now() < until)
    if (::send(connection.dialed.fd.get(), data.data(), data.size(), MSG_DONTWAIT) < 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto row = find(links.read(1), "127.0.0.2", "127.0.0.1");
  ASSERT_TRUE(row);
  EXPECT_GT(row->bytes, 0u);
  EXPECT_LT(row->busy, 150'000u);
}

TEST(TcpLinks, LeavesOutConnectionsWithinAHost) {
  const Connection connection("");
  EXPECT_FALSE(find(TcpLinks().read(64), "127.0.0.1", "127.0.0.1"));
}

}  // namespace
}  // namespace ringdist
