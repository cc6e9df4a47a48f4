// Transport `tcp` when its connections break, are refused, or bring what is no message.
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <random>
#include <string>

#include "conformance/transport_fixture.h"
#include "transport/tcp/data_port.h"

namespace ringdist {
namespace {

using tcp::RecordHead;

class TcpTest : public testing::Test {
 protected:
  explicit TcpTest(int interfaces = 1, const TransportConfig& config = {})
      : a_(*find_transport("tcp"), config, interfaces),
        b_(*find_transport("tcp"), config, interfaces) {}
  End a_, b_;

  void SetUp() override {
    ASSERT_FALSE(a_.transport->add_peer(b_.config.context_id, b_.transport->address()));
    ASSERT_FALSE(b_.transport->add_peer(a_.config.context_id, a_.transport->address()));
  }
  bool both_until(const std::function<bool()>& done) {
    return a_.progress_until([&] {
      b_.transport->progress();
      return done();
    });
  }
};

// Resets all TCP connections of this process: what is in their buffers is lost.
int reset_connections() {
  return for_tcp_connections([](int fd) {
    const sockaddr unspecified{.sa_family = AF_UNSPEC, .sa_data = {}};
    return syscall(SYS_connect, fd, &unspecified, sizeof unspecified) == 0;
  });
}

class TcpResets : public TcpTest, public testing::WithParamInterface<int> {
 protected:
  TcpResets() : TcpTest(GetParam()) {}
};

TEST_P(TcpResets, EachMessageArrivesOnceAndInOrder) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr int kMessages = 400;
  std::vector<std::vector<std::byte>> payloads;
  for (int i = 0; i < kMessages; ++i)
    payloads.push_back(pattern(random() % (i % 4 == 0 ? 200000 : 5000), i));
  int sent = 0, ended = 0, resets = 0;
  size_t next_reset = 1;
  ASSERT_TRUE(both_until([&] {
    for (; sent < kMessages && sent - ended < 16; ++sent)
      a_.send(b_.config.context_id, pattern(8, sent), payloads[sent], [&](const Error& error) {
        EXPECT_FALSE(error) << error.what();
        ++ended;
      });
    if (b_.inbox.got.size() >= next_reset) {
      next_reset = b_.inbox.got.size() + 1 + random() % 8;
      resets += reset_connections() > 0;
    }
    return ended == kMessages && b_.inbox.got.size() == kMessages;
  })) << ended
      << " sends ended, " << b_.inbox.got.size() << " messages arrived";
  EXPECT_GT(resets, 10);
  for (int i = 0; i < kMessages; ++i) {
    ASSERT_EQ(b_.inbox.got[i].header, pattern(8, i));
    ASSERT_EQ(b_.inbox.got[i].payload, payloads[i]);
  }
  EXPECT_TRUE(a_.inbox.lost.empty() && b_.inbox.lost.empty());
}

// Unlike in the test above, both ends have a long queue.
TEST_P(TcpResets, EachInterfaceCarriesAPart) {
  const std::vector<std::byte> payload = pattern(200000, 0);
  int ended = 0;
  for (int i = 0; i < 100; ++i)
    for (auto [from, to] : {std::pair(&a_, &b_), std::pair(&b_, &a_)})
      from->send(to->config.context_id, pattern(8, i), payload, [&](const Error& error) {
        EXPECT_FALSE(error);
        ++ended;
      });
  ASSERT_TRUE(both_until([&] {
    usleep(20000);  // so that a connection has one message in the kernel whenever it is looked at
    return ended == 200;
  }));
  std::string acknowledged;
  const int carrying = for_tcp_connections([&](int fd) {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
    acknowledged += std::to_string(info.tcpi_bytes_acked) + " ";
    return info.tcpi_bytes_acked > 400000;
  });
  EXPECT_EQ(carrying, 2 * GetParam()) << "bytes acknowledged: " << acknowledged;
  EXPECT_EQ(a_.inbox.got.size(), 100u);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(a_.inbox.got[i].header, pattern(8, i));
}

INSTANTIATE_TEST_SUITE_P(Interfaces, TcpResets, testing::Values(1, 2, 3));

// Somebody between the hosts takes bytes away, and confirms them.
class TcpThief : public TcpTest, public testing::WithParamInterface<int> {
 protected:
  TcpThief() : TcpTest(GetParam(), impatient()) {}
  static TransportConfig impatient() {
    TransportConfig out;
    out.peer_timeout = Milliseconds(2000);  // a busy machine needs a part of it to dial
    return out;
  }
};

TEST_P(TcpThief, WhatIsStolenIsSentAgain) {
  const std::vector<std::byte> payload = pattern(60000, 1);  // read until the sends have ended
  int ended = 0;
  const auto send = [&] {
    a_.send(b_.config.context_id, pattern(8, 0), payload, [&](const Error& error) {
      EXPECT_FALSE(error) << error.what();
      ++ended;
    });
  };
  for (size_t i = 1; i <= 3; ++i) {
    send();
    ASSERT_TRUE(both_until([&] { return b_.inbox.got.size() == 2 * i - 1; }));
    send();
    std::vector<std::byte> loot(1 << 20);
    const auto takes = [&](int fd) {
      return syscall(SYS_recvfrom, fd, loot.data(), loot.size(), MSG_DONTWAIT, nullptr, nullptr) >
             1000;
    };
    ASSERT_TRUE(a_.progress_until([&] { return for_tcp_connections(takes) > 0; }));
    ASSERT_TRUE(both_until([&] { return b_.inbox.got.size() == 2 * i; }));
  }
  EXPECT_TRUE(both_until([&] { return ended == 6; }));
  EXPECT_TRUE(a_.inbox.lost.empty() && b_.inbox.lost.empty());
}

INSTANTIATE_TEST_SUITE_P(Interfaces, TcpThief, testing::Values(1, 2));

TEST(TcpPaths, ConnectInterfacesOfTheSameNetwork) {
  const auto pairs = [](const std::vector<std::string>& own, const std::vector<std::string>& peer) {
    std::string out;
    for (const auto& [ip, address] : tcp::pair_interfaces(own, peer))
      out += ip + "-" + address + " ";
    return out;
  };
  EXPECT_EQ(pairs({"10.0.0.1", "10.1.0.1"}, {"10.1.0.2:7", "10.0.0.2:7"}),
            "10.0.0.1-10.0.0.2:7 10.1.0.1-10.1.0.2:7 ");
  EXPECT_EQ(pairs({"10.0.0.1", "10.1.0.1"}, {"10.1.0.2:7"}), "10.1.0.1-10.1.0.2:7 ");
  EXPECT_EQ(pairs({"10.0.0.1", "[fd00::1]"}, {"[fd00::2]:7", "10.0.0.2:7"}),
            "[fd00::1]-[fd00::2]:7 10.0.0.1-10.0.0.2:7 ");
  EXPECT_EQ(pairs({"10.0.0.1"}, {"[fd00::2]:7"}), "-[fd00::2]:7 ");
}

// The memory of a revoked payload changes before the message is written, or written again.
TEST_F(TcpTest, ARevokedPayloadArrivesAsItWas) {
  std::vector<std::byte> memory = pattern(100000, 1);
  bool ended = false;
  const SendId id = a_.inbox.sends.begin([&](const Error& error) {
    EXPECT_FALSE(error);
    ended = true;
  });
  a_.transport->send(b_.config.context_id, pattern(8, 0), memory, id);
  a_.transport->revoke_payload(b_.config.context_id, id);
  std::ranges::fill(memory, std::byte{0});
  ASSERT_TRUE(both_until([&] { return ended && !b_.inbox.got.empty(); }));
  EXPECT_EQ(b_.inbox.got[0].payload, pattern(100000, 1));
}

// The numbers of the descriptors that a child closes are soon those of other files.
TEST_F(TcpTest, AForkedChildWritesNothing) {
  for (auto [from, to] : {std::pair(&a_, &b_), std::pair(&b_, &a_)})
    from->send(to->config.context_id, pattern(8, 0), {}, [](const Error&) {});
  ASSERT_TRUE(both_until([&] { return a_.inbox.got.size() == 1 && b_.inbox.got.size() == 1; }));
  const pid_t child = fork();  // acknowledgements are missing
  if (child == 0) {
    int written = 0;
    std::array<std::array<int, 2>, 20> pairs;
    for (auto& pair : pairs) (void)socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data());
    a_.transport.reset();
    b_.transport.reset();
    for (const auto& pair : pairs)
      for (const int end : pair) {
        std::byte byte;
        written += recv(end, &byte, 1, MSG_DONTWAIT) > 0;
      }
    _exit(written == 0 ? 42 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 42);
}

// A stranger has the address, but not the secret; a member has both.
class TcpStranger : public TcpTest {
 protected:
  // Dials b_ and sends a hello and what follows it. Returns true if b_ answers.
  bool is_answered(const DataHello& hello, ConstBytes rest, const std::string& ip = "127.0.0.1") {
    socket_ = connect_tcp(b_.listener.addresses()[0], ip).fd;
    std::vector<std::byte> bytes = hello.frame();
    bytes.insert(bytes.end(), rest.begin(), rest.end());
    pollfd writable{socket_.get(), POLLOUT, 0};
    poll(&writable, 1, 1000);
    EXPECT_EQ(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    return b_.progress_until([&] {
      pollfd readable{socket_.get(), POLLIN, 0};
      return poll(&readable, 1, 0) == 1;
    }) && recv(socket_.get(), &count_, sizeof count_, 0) == sizeof count_;
  }
  // Returns true once b_ has closed the connection.
  bool is_closed() {
    return b_.progress_until([&] {
      std::byte byte;
      return recv(socket_.get(), &byte, 1, MSG_DONTWAIT) == 0 ||
             (errno != EAGAIN && errno != EWOULDBLOCK);
    });
  }
  DataHello hello_of_a_member() const {
    const auto to = tcp::DataAddress::decode(b_.transport->address());
    return {a_.config.context_id, b_.config.context_id, 1, 0, to->secret};
  }
  Fd socket_;
  uint64_t count_ = 0;
};

TEST_F(TcpStranger, NeedsTheSecret) {
  DataHello hello = hello_of_a_member();
  hello.secret[3] ^= std::byte{1};
  EXPECT_FALSE(is_answered(hello, {}));
}

TEST_F(TcpStranger, ComesFromTheAddressOfThePeer) {
  EXPECT_FALSE(is_answered(hello_of_a_member(), {}, "127.0.0.2"));
  EXPECT_TRUE(is_answered(hello_of_a_member(), {}));
}

TEST_F(TcpStranger, IsCutOffWhereItSendsWhatIsNoRecord) {
  const auto as_bytes = [](const RecordHead& head) {
    std::vector<std::byte> out(sizeof head);
    std::memcpy(out.data(), &head, sizeof head);
    return out;
  };
  const auto most = static_cast<uint32_t>(b_.transport->max_payload());
  const RecordHead wrong[] = {{.payload_bytes = most + 1},
                              {.header_bytes = kMaxHeaderBytes + 1},
                              {.kind = static_cast<tcp::RecordKind>(9)}};
  for (const RecordHead& head : wrong) {
    ASSERT_TRUE(is_answered(hello_of_a_member(), as_bytes(head)));
    EXPECT_EQ(count_, 0u);
    EXPECT_TRUE(is_closed());
  }
  EXPECT_TRUE(b_.inbox.got.empty());
}

// The first record never comes, so all others wait for it.
TEST_F(TcpStranger, MakesNoMemoryGrowWithRecordsThatComeEarly) {
  ASSERT_TRUE(is_answered(hello_of_a_member(), {}));
  RecordHead head{.payload_bytes = static_cast<uint32_t>(b_.transport->max_payload())};
  std::vector<std::byte> record(head.bytes());
  size_t sent = 0;
  const auto goes_on = [&] {
    if (sent % record.size() == 0) {
      ++head.number;
      std::memcpy(record.data(), &head, sizeof head);
    }
    const size_t offset = sent % record.size();
    const ssize_t took = ::send(socket_.get(), record.data() + offset, record.size() - offset,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (took > 0) sent += static_cast<size_t>(took);
    return took > 0 || errno == EAGAIN || errno == EWOULDBLOCK;
  };
  EXPECT_TRUE(b_.progress_until([&] { return !goes_on(); }));
  EXPECT_GT(sent, tcp::kWindow);
  EXPECT_LT(sent, 3 * tcp::kWindow);  // a part is in buffers of the kernel
  EXPECT_TRUE(b_.inbox.got.empty());
}

}  // namespace
}  // namespace ringdist
