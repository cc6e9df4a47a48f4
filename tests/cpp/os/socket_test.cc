#include "os/socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace ringdist {
namespace {

std::string unique_name() { return "@ringdist-socket-test-" + std::to_string(getpid()); }

// Checks the flags that every socket of the project needs.
void expect_well_made(const Fd& fd) {
  EXPECT_TRUE(fcntl(fd.get(), F_GETFD) & FD_CLOEXEC);
  EXPECT_TRUE(fcntl(fd.get(), F_GETFL) & O_NONBLOCK);
}

void wait_for(const Fd& fd, short events) {
  pollfd entry{fd.get(), events, 0};
  poll(&entry, 1, 2000);
}

TEST(Socket, UnixTellsWhoIsThere) {
  auto listener = listen_unix(unique_name());
  ASSERT_TRUE(listener.ok()) << listener.error().what();
  EXPECT_FALSE(listen_unix(unique_name()).ok());
  ConnectAttempt attempt = connect_unix(unique_name());
  ASSERT_FALSE(attempt.failure);
  Fd accepted = accept_connection(listener.value());
  ASSERT_TRUE(accepted);
  EXPECT_FALSE(accept_connection(listener.value()));
  for (const Fd* fd : {&listener.value(), &attempt.fd, &accepted}) expect_well_made(*fd);
  auto who = peer_credentials(accepted);
  ASSERT_TRUE(who.ok());
  EXPECT_EQ(who.value().pid, getpid());
  EXPECT_EQ(who.value().uid, geteuid());
}

TEST(Socket, APidIsComparedWithThatOfTheListener) {
  const std::string name = unique_name() + "-x";
  const auto listener = listen_unix(name);
  ASSERT_TRUE(listener.ok()) << listener.error().what();
  EXPECT_TRUE(is_listener(getpid(), name));
  EXPECT_TRUE(is_listener(0, name)) << "the kernel does not show it";
  EXPECT_FALSE(is_listener(getpid() + 1, name));
  EXPECT_FALSE(is_listener(getpid(), "@ringdist-nobody"));
  const auto other = listen_unix(unique_name());  // this name does not contain it between dashes
  ASSERT_TRUE(other.ok()) << other.error().what();
  EXPECT_TRUE(is_listener(getpid(), unique_name()));
  EXPECT_FALSE(is_listener(getpid() + 1, unique_name()));
}

TEST(Socket, UnixFailuresTellErrno) {
  ConnectAttempt nobody = connect_unix(unique_name() + "x");
  ASSERT_TRUE(nobody.failure);
  EXPECT_EQ(nobody.failure->errno_value, ECONNREFUSED);
  EXPECT_EQ(connect_unix("no-at-sign").failure->errno_value, EINVAL);
  EXPECT_EQ(connect_unix("@" + std::string(200, 'x')).failure->errno_value, EINVAL);
}

TEST(Socket, TcpOnAGivenAddress) {
  for (const char* ip : {"127.0.0.1", "::1"}) {
    auto listener = listen_tcp(ip, 0);
    if (!listener.ok() && std::string(ip) == "::1") continue;  // no IPv6 here
    ASSERT_TRUE(listener.ok()) << listener.error().what();
    auto address = local_address(listener.value());
    ASSERT_TRUE(address.ok());
    ConnectAttempt attempt = connect_tcp(address.value());
    ASSERT_FALSE(attempt.failure) << attempt.failure->error.message();
    wait_for(attempt.fd, POLLOUT);
    EXPECT_EQ(connect_result(attempt.fd), 0);
    wait_for(listener.value(), POLLIN);
    Fd accepted = accept_connection(listener.value());
    ASSERT_TRUE(accepted);
    for (const Fd* fd : {&listener.value(), &attempt.fd, &accepted}) expect_well_made(*fd);
  }
}

TEST(Socket, TheFirstFreePortOfARangeIsTaken) {
  auto first = listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(first.ok());
  const std::string address = local_address(first.value()).value();
  const auto port = static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  if (port > 65525) GTEST_SKIP() << "there is no range behind port " << port;
  auto next = listen_tcp("127.0.0.1", port, port + 10);
  ASSERT_TRUE(next.ok()) << next.error().what();
  const std::string other = local_address(next.value()).value();
  const int taken = std::stoi(other.substr(other.rfind(':') + 1));
  EXPECT_TRUE(taken > port && taken <= port + 10) << taken;
  const auto none = listen_tcp("127.0.0.1", port, port);
  ASSERT_FALSE(none.ok());
  const std::string text = none.error().message();
  EXPECT_NE(text.find("port " + std::to_string(port) + " of 127.0.0.1"), std::string::npos) << text;
  EXPECT_NE(text.find("RINGDIST_PORT"), std::string::npos) << text;
}

// The whole of 127.0.0.0/8 belongs to the host, so it has several addresses.
TEST(Socket, AConnectionComesFromTheGivenAddress) {
  auto listener = listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok()) << listener.error().what();
  const std::string address = local_address(listener.value()).value();
  for (const std::string ip : {"", "127.0.0.2"}) {
    ConnectAttempt attempt = connect_tcp(address, ip);
    ASSERT_FALSE(attempt.failure) << attempt.failure->error.message();
    wait_for(listener.value(), POLLIN);
    Fd accepted = accept_connection(listener.value());
    ASSERT_TRUE(accepted);
    EXPECT_EQ(without_port(remote_address(accepted)), ip.empty() ? "127.0.0.1" : ip);
    EXPECT_EQ(remote_address(attempt.fd), address);
    EXPECT_EQ(remote_address(accepted), local_address(attempt.fd).value());
  }
  EXPECT_TRUE(connect_tcp(address, "192.0.2.77").failure) << "not an address of this host";
  EXPECT_EQ(remote_address(listener.value()), "") << "nobody is at its other end";
  EXPECT_EQ(without_port("[::1]:5"), "[::1]");
}

TEST(Socket, BadAddressesAreErrors) {
  for (const char* bad :
       {"", "127.0.0.1", "localhost:1", "127.0.0.1:x", "127.0.0.1:70000", "[::1:5"})
    EXPECT_TRUE(connect_tcp(bad).failure) << bad;
  EXPECT_FALSE(listen_tcp("not an ip", 0).ok());
  EXPECT_FALSE(listen_tcp("192.0.2.77", 0).ok());  // not an address of this host
}

}  // namespace
}  // namespace ringdist
