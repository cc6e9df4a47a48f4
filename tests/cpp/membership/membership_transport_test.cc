#include "membership/membership_transport.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "os/random.h"
#include "os/socket.h"
#include "support/test_certificate.h"
#include "support/test_key.h"

namespace ringdist {
namespace {

constexpr uint64_t kGroupId = 7;
constexpr ProcessId kSelf = 1;
constexpr ProcessId kOther = 2;

Epoll must_create_epoll() {
  auto out = Epoll::create();
  EXPECT_TRUE(out.ok());
  return std::move(out.value());
}

std::vector<std::byte> message_of(const std::string& text) {
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

// The MembershipTransport of one process, and a socket in place of the control plane of another.
class MembershipTransportTest : public testing::Test, protected MembershipTransport::Delegate {
 protected:
  void SetUp() override {
    auto listener = listen_unix(other_.unix_name);
    ASSERT_TRUE(listener.ok()) << listener.error().what();
    listener_ = std::move(listener.value());
  }

  void on_message(const MessageOrigin& from, ConstBytes message) override {
    EXPECT_EQ(from.process, sender_);
    EXPECT_EQ(from.pid, getpid());
    received_.emplace_back(reinterpret_cast<const char*>(message.data()), message.size());
  }
  void on_deserted(ProcessId process) override {
    EXPECT_EQ(process, kOther);
    ++deserted_;
  }

  bool send(const std::string& text, bool certain = false) {
    return transport_.send(other_, kGroupId, message_of(text), certain, Clock::now());
  }
  bool adopt(FramedSocket stream) {
    const auto from = MessageOrigin::of(stream.fd(), kOther, LinkKind::kLocal);
    return transport_.adopt(std::move(stream), from, Clock::now());
  }
  // Accepts a connection and returns its hello and its messages.
  std::vector<std::string> read_accepted() {
    std::vector<std::string> out;
    FramedSocket stream(accept_connection(listener_));
    EXPECT_TRUE(stream.fd()) << "nobody has dialed";
    if (!stream.fd()) return out;
    while (stream.receive() == FramedSocket::Input::kData) {
      for (;;) {
        const auto frame = stream.next();
        EXPECT_TRUE(frame.ok());
        if (!frame.ok() || !frame.value()) break;
        if (frame.value()->type == FrameType::kMembershipHello) {
          const auto hello = ControlHello::decode(frame.value()->body);
          EXPECT_TRUE(hello && hello->from == kSelf && hello->to == kOther &&
                      hello->nonce == kGroupId);
          continue;
        }
        EXPECT_EQ(frame.value()->type, FrameType::kMembership);
        const ConstBytes body = frame.value()->body;
        out.emplace_back(reinterpret_cast<const char*>(body.data()), body.size());
      }
    }
    return out;
  }
  // Handles events and lets time pass until `done`, for at most five seconds.
  template <typename Done>
  bool turn_until(const Done& done) {
    for (const TimePoint end = Clock::now() + std::chrono::seconds(5); Clock::now() < end;) {
      if (done()) return true;
      for (const Epoll::Event& event : epoll_.wait(Milliseconds(1)))
        transport_.on_event(event.key, Clock::now());
      transport_.tick(Clock::now());
    }
    return done();
  }

  Epoll epoll_ = must_create_epoll();
  MembershipTransport transport_{kSelf, epoll_, 16,
                                 static_cast<MembershipTransport::Delegate&>(*this)};
  const PeerAddress other_{kOther, LinkKind::kLocal,
                           "@ringdist-post-test-" + std::to_string(random_id()), ""};
  Fd listener_;
  std::vector<std::string> received_;
  ProcessId sender_ = kOther;
  int deserted_ = 0;
};

TEST_F(MembershipTransportTest, TheKernelHasAMessageBeforeTheOtherSideRuns) {
  EXPECT_TRUE(send("a"));
  EXPECT_TRUE(send("b", /*certain=*/true));
  EXPECT_EQ(read_accepted(), (std::vector<std::string>{"a", "b"}));
}

TEST_F(MembershipTransportTest, OneConnectionServesGroupsOfSeveralNetworks) {
  EXPECT_TRUE(send("a"));
  PeerAddress elsewhere = other_;
  elsewhere.tcp_address = "127.0.0.1:9";
  elsewhere.own_ip = "127.0.0.2";
  EXPECT_TRUE(transport_.send(elsewhere, kGroupId, message_of("b"), false, Clock::now()));
  EXPECT_EQ(read_accepted(), (std::vector<std::string>{"a", "b"}));
}

TEST_F(MembershipTransportTest, OneThatDoesNotReadLeavesRoomForWhatMustBeCertain) {
  const std::string big(20000, 'x');
  int taken = 0;
  while (send(big) && taken < 1000) ++taken;
  EXPECT_GT(taken, 1);
  EXPECT_LT(taken, 1000) << "the socket holds everything";
  EXPECT_TRUE(send("certain", /*certain=*/true));
  const auto read = read_accepted();
  ASSERT_FALSE(read.empty());
  EXPECT_EQ(read.back(), "certain");
}

TEST_F(MembershipTransportTest, OneThatSendsOnAConnectionOfOursIsCutOff) {
  ASSERT_TRUE(send("a"));
  const Fd accepted = accept_connection(listener_);
  const std::vector<std::byte> noise(1000);
  ASSERT_GT(::send(accepted.get(), noise.data(), noise.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(turn_until([&] {
    std::byte byte;
    return recv(accepted.get(), &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET;
  }));
}

TEST_F(MembershipTransportTest, AProcessHasFourConnections) {
  std::vector<Fd> ends;
  for (int i = 0; i < 6; ++i) {
    std::array<int, 2> pair{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair.data()), 0);
    ends.push_back(Fd::open([&] { return pair[0]; }));
    Fd its = Fd::open([&] { return pair[1]; });
    EXPECT_TRUE(adopt(FramedSocket(std::move(its))));
  }
  const auto ended = [](const Fd& fd) {
    std::byte byte;
    return recv(fd.get(), &byte, 1, MSG_DONTWAIT) == 0;
  };
  EXPECT_EQ(std::ranges::count_if(ends, ended), 2);
  EXPECT_TRUE(ended(ends[0]));
  EXPECT_FALSE(ended(ends[5]));
}

TEST_F(MembershipTransportTest, WhereNobodyListensTheProcessIsGone) {
  EXPECT_TRUE(send("a"));
  listener_.reset();  // the kernel also closes the pending connections
  EXPECT_TRUE(turn_until([&] { return deserted_ == 1; }));
  EXPECT_FALSE(send("b", /*certain=*/true));
  EXPECT_TRUE(turn_until([&] { return deserted_ == 1; })) << "told once";
}

TEST_F(MembershipTransportTest, AProcessWithoutItsNameIsGone) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can listen as another user";
  EXPECT_TRUE(send("a"));
  listener_.reset();
  ASSERT_EQ(seteuid(65534), 0);
  auto taken = listen_unix(other_.unix_name);
  ASSERT_EQ(seteuid(0), 0);
  ASSERT_TRUE(taken.ok()) << taken.error().what();
  EXPECT_TRUE(turn_until([&] { return deserted_ == 1; }));
}

TEST_F(MembershipTransportTest, WhoAcceptsAndEndsIsNotGoneAndNotAskedAllTheTime) {
  int accepted = 0;
  const TimePoint until = Clock::now() + Milliseconds(600);
  turn_until([&] {
    transport_.watch(other_, kGroupId, Clock::now());
    while (accept_connection(listener_)) ++accepted;
    return Clock::now() >= until;
  });
  EXPECT_EQ(deserted_, 0);
  EXPECT_GT(accepted, 1) << "it is looked at again";
  EXPECT_LT(accepted, 50);
}

TEST_F(MembershipTransportTest, WhatHadArrivedBeforeTheEndIsTakenIn) {
  ConnectAttempt dialed = connect_unix(other_.unix_name);
  FramedSocket theirs(std::move(dialed.fd));
  FramedSocket ours(accept_connection(listener_));
  ASSERT_TRUE(theirs.send(make_frame(FrameType::kMembership, message_of("last words"))));
  theirs.close();
  EXPECT_TRUE(adopt(std::move(ours)));
  transport_.take_in(kOther, Clock::now());
  EXPECT_EQ(received_, (std::vector<std::string>{"last words"}));
}

TEST_F(MembershipTransportTest, AnInvalidFrameEndsTheConnection) {
  ConnectAttempt dialed = connect_unix(other_.unix_name);
  FramedSocket theirs(std::move(dialed.fd));
  FramedSocket ours(accept_connection(listener_));
  EXPECT_TRUE(adopt(std::move(ours)));
  ASSERT_TRUE(theirs.send(make_frame(FrameType::kHeartbeat)));
  EXPECT_TRUE(turn_until([&] { return theirs.receive() == FramedSocket::Input::kEnd; }));
  EXPECT_TRUE(received_.empty());
}

// Messages to another host that are sent during the connect are not lost.
TEST_F(MembershipTransportTest, AnotherHostIsDialedByItsAddress) {
  auto listener = listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok());
  listener_ = std::move(listener.value());
  const PeerAddress far{kOther, LinkKind::kTcp, "", local_address(listener_).value(), "127.0.0.2"};
  EXPECT_FALSE(transport_.send(far, kGroupId, message_of("a"), /*certain=*/false, Clock::now()));
  Fd accepted;
  EXPECT_TRUE(turn_until([&] {
    if (!accepted) accepted = accept_connection(listener_);
    return static_cast<bool>(accepted);
  }));
  const auto origin = MessageOrigin::of(accepted, kSelf, LinkKind::kTcp);
  EXPECT_EQ(origin.ip, "127.0.0.2") << "the process listens there, so it is recognized by that";
  FramedSocket stream(std::move(accepted));
  std::vector<std::string> read;
  EXPECT_TRUE(turn_until([&] {
    (void)stream.receive();
    for (;;) {
      const auto frame = stream.next();
      if (!frame.ok() || !frame.value()) break;
      if (frame.value()->type == FrameType::kMembership)
        read.emplace_back(reinterpret_cast<const char*>(frame.value()->body.data()),
                          frame.value()->body.size());
    }
    return !read.empty();
  }));
  EXPECT_EQ(read, (std::vector<std::string>{"a"}));
  listener_.reset();
  stream.close();
  turn_until([&, until = Clock::now() + Milliseconds(300)] { return Clock::now() >= until; });
  EXPECT_EQ(deserted_, 0) << "of another host nobody knows that";
}

// A transport with a key, to which processes of this host connect.
class KeyedMembershipTransportTest : public MembershipTransportTest {
 protected:
  // Connects in the name of a process, and returns its end.
  FramedSocket connect_as(ProcessId process) {
    std::array<int, 2> pair{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair.data()), 0);
    FramedSocket theirs(Fd::open([&] { return pair[0]; }));
    FramedSocket ours(Fd::open([&] { return pair[1]; }));
    const auto from = MessageOrigin::of(ours.fd(), process, LinkKind::kLocal);
    EXPECT_TRUE(keyed_.adopt(std::move(ours), from, Clock::now()));
    return theirs;
  }
  // Returns true if this end was closed after the message.
  bool is_cut_off_after(FramedSocket& theirs, ConstBytes message) {
    EXPECT_TRUE(theirs.send(make_frame(FrameType::kMembership, message)));
    keyed_.take_in(kOther, Clock::now());
    return theirs.receive() == FramedSocket::Input::kEnd;
  }

  const std::shared_ptr<const TlsKey> key_ = key_of(1);
  const std::vector<std::byte> sealed_ =
      key_->seal(message_of("sealed"), "membership message from 2 to 1");
  MembershipTransport keyed_{kSelf, epoll_, uint64_t{1} << 20,
                             static_cast<MembershipTransport::Delegate&>(*this), key_};
};

TEST_F(KeyedMembershipTransportTest, OnlyMessagesSealedForThisProcessCount) {
  const std::vector<std::byte> refused[] = {
      message_of("plain"), key_->seal(message_of("back"), "membership message from 1 to 2"),
      key_->seal(message_of("another"), "membership message from 3 to 1"),
      key_of(2)->seal(message_of("key"), "membership message from 2 to 1")};
  for (const auto& message : refused) {
    FramedSocket theirs = connect_as(kOther);
    EXPECT_TRUE(is_cut_off_after(theirs, message));
  }
  EXPECT_TRUE(received_.empty());
  FramedSocket theirs = connect_as(kOther);
  EXPECT_FALSE(is_cut_off_after(theirs, sealed_));
  EXPECT_EQ(received_, (std::vector<std::string>{"sealed"}));
}

// A member signs a message in the name of another one.
TEST_F(KeyedMembershipTransportTest, ACertificateIsOfItsSender) {
  const auto a = certificate_of("a");
  const ProcessId sender = sender_ = a->draw_id();
  const std::string name =
      "membership message from " + std::to_string(sender) + " to " + std::to_string(kSelf);
  MembershipTransport certified(kSelf, epoll_, uint64_t{1} << 21,
                                static_cast<MembershipTransport::Delegate&>(*this),
                                certificate_of("any"));
  const auto is_cut_off = [&](const std::vector<std::byte>& message) {
    std::array<int, 2> pair{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair.data()), 0);
    FramedSocket theirs(Fd::open([&] { return pair[0]; }));
    FramedSocket ours(Fd::open([&] { return pair[1]; }));
    const auto from = MessageOrigin::of(ours.fd(), sender, LinkKind::kLocal);
    EXPECT_TRUE(certified.adopt(std::move(ours), from, Clock::now()));
    EXPECT_TRUE(theirs.send(make_frame(FrameType::kMembership, message)));
    certified.take_in(sender, Clock::now());
    return theirs.receive() == FramedSocket::Input::kEnd;
  };
  testing::internal::CaptureStderr();
  EXPECT_TRUE(is_cut_off(certificate_of("b")->seal(message_of("forged"), name)));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("it has the certificate of owner 'b' for ranks 2, 5, which is not that of the "
                     "process it claims to be"),
            std::string::npos)
      << log;
  EXPECT_TRUE(received_.empty());
  EXPECT_FALSE(is_cut_off(a->seal(message_of("signed"), name)));
  EXPECT_EQ(received_, (std::vector<std::string>{"signed"}));
}

TEST_F(KeyedMembershipTransportTest, ConnectionsThatProveNothingAreFew) {
  constexpr int kTries = 300;
  constexpr int kMost = 256;
  FramedSocket member = connect_as(kOther);
  EXPECT_FALSE(is_cut_off_after(member, sealed_));
  std::vector<FramedSocket> others;
  for (int i = 0; i < kTries; ++i) others.push_back(connect_as(kOther + 1 + i));
  EXPECT_EQ(std::ranges::count_if(
                others, [](auto& one) { return one.receive() == FramedSocket::Input::kEnd; }),
            kTries - kMost);
  EXPECT_FALSE(is_cut_off_after(member, sealed_));
  EXPECT_EQ(received_.size(), 2u);
}

}  // namespace
}  // namespace ringdist
