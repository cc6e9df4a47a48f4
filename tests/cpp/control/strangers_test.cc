// Connections to a control plane from processes that do not belong there, and the reports that a
// newcomer gets.
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

#include "control/control_connection.h"
#include "control/control_frames.h"
#include "control/fixture.h"
#include "os/socket.h"

namespace ringdist::test {
namespace {

// Less than the 5 s after which a connection without a hello is closed.
constexpr milliseconds kTurnedAway(4000);

// Sends bytes over a connection and returns true if the control plane closes it within `limit`.
bool hangs_up(ConnectAttempt attempt, const std::vector<std::byte>& bytes, milliseconds limit) {
  pollfd ready{attempt.fd.get(), POLLOUT, 0};
  poll(&ready, 1, 1000);
  send(attempt.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  for (TimePoint end = in(limit); Clock::now() < end;) {
    pollfd entry{attempt.fd.get(), POLLIN, 0};
    std::byte buffer[256];
    if (poll(&entry, 1, 50) == 1 && recv(attempt.fd.get(), buffer, sizeof buffer, 0) <= 0)
      return true;
  }
  return false;
}

TEST(ControlStrangers, AreTurnedAway) {
  Nodes nodes = make_nodes(2);
  connect_all(nodes, 5, members_of(nodes, {0, 1}));
  const Node& node = *nodes[0];
  auto tcp = [&](const std::vector<std::byte>& bytes, milliseconds limit = kTurnedAway) {
    return hangs_up(connect_tcp(node.control->tcp_address()), bytes, limit);
  };
  EXPECT_TRUE(tcp(ControlHello{99, node.id, 5}.frame()));  // the right nonce, but not a member
  // It may belong to a future group, so it is held.
  EXPECT_FALSE(tcp(ControlHello{99, node.id, 6}.frame(), milliseconds(1500)));
  EXPECT_TRUE(tcp(to_bytes("GET / HTTP/1.1\r\n\r\n")));
  EXPECT_TRUE(tcp(make_frame(FrameType::kFlood, std::string(1000, 'x'))));
  EXPECT_TRUE(tcp(PeerDeparture{nodes[1]->id, "lies"}.frame(FrameType::kLost)));
  EXPECT_TRUE(tcp(make_frame(FrameType::kDumpRequest)));
  std::vector<std::byte> huge(8, std::byte{0xff});
  EXPECT_TRUE(hangs_up(connect_unix(node.control->unix_name()), huge, kTurnedAway));
  EXPECT_EQ(nodes[0]->events.lost_count(), 0u);
}

// Every process of this user can connect inside the host, but only members report departures.
TEST(ControlStrangers, OfThisHostReportNobody) {
  Nodes nodes = make_nodes(2);
  connect_all(nodes, 5, members_of(nodes, {0, 0}));
  auto bytes = ControlHello{99, nodes[0]->id, 0}.frame();
  for (const auto& node : nodes) {
    const auto lie = PeerDeparture{node->id, "lies"}.frame(FrameType::kLost);
    bytes.insert(bytes.end(), lie.begin(), lie.end());
  }
  EXPECT_TRUE(hangs_up(connect_unix(nodes[0]->control->unix_name()), bytes, kSoon));
  for (const auto& node : nodes) EXPECT_EQ(node->events.lost_count(), 0u);
}

// Sends bytes over a connection and returns the types of the frames that come within `limit`. The
// first frame has `first` to come, and `limit` begins anew with it.
std::vector<FrameType> answers(ConnectAttempt attempt, const std::vector<std::byte>& bytes,
                               milliseconds limit, milliseconds first = milliseconds(0)) {
  std::vector<FrameType> out;
  FrameReader reader;
  pollfd ready{attempt.fd.get(), POLLOUT, 0};
  poll(&ready, 1, 1000);
  send(attempt.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  for (TimePoint end = in(std::max(limit, first)); Clock::now() < end;) {
    pollfd entry{attempt.fd.get(), POLLIN, 0};
    std::array<std::byte, 65536> buffer;
    if (poll(&entry, 1, 50) != 1) continue;
    const auto n = recv(attempt.fd.get(), buffer.data(), buffer.size(), 0);
    if (n <= 0) break;
    reader.append(ConstBytes(buffer).first(static_cast<size_t>(n)));
    if (out.empty()) end = in(limit);
    for (auto frame = reader.next(); frame.ok() && frame.value(); frame = reader.next())
      out.push_back(frame.value()->type);
  }
  return out;
}

// A process of this user gets departures, notices and nonces only if it names a group as a member.
TEST(ControlStrangers, OfThisHostGetNoNews) {
  Nodes nodes = make_nodes(2);
  connect_all(nodes, 5, members_of(nodes, {0, 0}));
  nodes[1]->control->flood(to_bytes("for members"));
  nodes[1]->control->give_up(77, "silent");
  ASSERT_TRUE(nodes[0]->events.waits_for_floods(1, kSoon));
  ASSERT_TRUE(nodes[0]->events.waits_for_lost(77, kSoon));
  const auto hello = [&](uint64_t to, uint64_t nonce, milliseconds first = milliseconds(0)) {
    return answers(connect_unix(nodes[0]->control->unix_name()),
                   ControlHello{99, to, nonce}.frame(), milliseconds(500), first);
  };
  for (const uint64_t nonce : {0, 6}) {
    const auto heard = hello(nodes[0]->id, nonce, kSoon);
    EXPECT_EQ(std::ranges::count(heard, FrameType::kHeld), 1) << nonce;
    EXPECT_EQ(std::ranges::count(heard, FrameType::kHeartbeat), std::ssize(heard) - 1) << nonce;
  }
  EXPECT_TRUE(hello(nodes[0]->id, 5).empty()) << "no member";
  EXPECT_TRUE(hello(98, 0).empty()) << "for another process";
  EXPECT_NE(request_dump(nodes[0]->control->unix_name()), "");
}

TEST(ControlStrangers, OfOtherHostsGetNoAnswerAndNoDump) {
  Nodes nodes = make_nodes(2);
  connect_all(nodes, 5, members_of(nodes, {0, 1}));
  const std::string address = nodes[0]->control->tcp_address();
  const auto hello = [](uint64_t from, uint64_t to) { return ControlHello{from, to, 5}.frame(); };
  EXPECT_TRUE(answers(connect_tcp(address), hello(99, 98), milliseconds(500)).empty());
  auto as_member = hello(nodes[1]->id, nodes[0]->id);
  const auto request = make_frame(FrameType::kDumpRequest);
  as_member.insert(as_member.end(), request.begin(), request.end());
  for (const FrameType type : answers(connect_tcp(address), as_member, milliseconds(500)))
    EXPECT_NE(type, FrameType::kDump);
}

// Members dial from the ip at which they listen, by which they are recognized.
TEST(ControlStrangers, OfAnotherAddressSpeakForNoMember) {
  Nodes nodes = make_nodes(2);
  connect_all(nodes, 5, members_of(nodes, {0, 1}));
  const std::string address = nodes[0]->control->tcp_address();
  auto bytes = ControlHello{nodes[1]->id, nodes[0]->id, 5}.frame();
  const auto lie = PeerDeparture{nodes[1]->id, ""}.frame(FrameType::kLeft);
  bytes.insert(bytes.end(), lie.begin(), lie.end());
  EXPECT_TRUE(answers(connect_tcp(address, "127.0.0.2"), bytes, milliseconds(500)).empty());
  EXPECT_EQ(nodes[0]->events.left_count(), 0u);
}

// The hosts have further addresses, and the kernel would choose 127.0.0.1.
TEST(ControlStrangers, MembersDialFromTheAddressAtWhichTheyListen) {
  Nodes nodes = make_nodes(2);
  auto members = members_of(nodes, {0, 1});
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto listens = nodes[i]->control->listen("127.0.0." + std::to_string(i + 2));
    ASSERT_TRUE(listens.ok()) << listens.error().what();
    members[i].tcp_address = listens.value();
  }
  connect_all(nodes, 5, members);
}

// Another process of this user claims to be a member, before and after there is a group.
TEST(ControlStrangers, OfAnotherPidSpeakForNoMember) {
  Nodes nodes = make_nodes(2);
  const auto claim = [&] {
    const auto bytes = ControlHello{nodes[1]->id, nodes[0]->id, 5}.frame();
    return hangs_up(connect_unix(nodes[0]->control->unix_name()), bytes, kTurnedAway) ? 0 : 1;
  };
  const pid_t early = fork();
  if (early == 0) _exit(claim());
  std::this_thread::sleep_for(milliseconds(200));
  connect_all(nodes, 5, members_of(nodes, {0, 0}));
  const pid_t late = fork();
  if (late == 0) _exit(claim());
  for (const pid_t child : {early, late}) {
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << (child == early ? "early" : "late");
  }
  EXPECT_EQ(nodes[0]->events.lost_count(), 0u);
  EXPECT_EQ(nodes[0]->events.left_count(), 0u);
}

// Opens `count` connections that send nothing.
std::vector<Fd> stay_silent(const Node& node, LinkKind kind, size_t count) {
  std::vector<Fd> out;
  while (out.size() < count) {
    ConnectAttempt attempt = kind == LinkKind::kLocal ? connect_unix(node.control->unix_name())
                                                      : connect_tcp(node.control->tcp_address());
    if (attempt.failure) {
      EXPECT_EQ(attempt.failure->errno_value, EAGAIN) << attempt.failure->error.what();
      std::this_thread::sleep_for(milliseconds(1));  // its accept queue is full
      continue;
    }
    if (attempt.pending) {
      pollfd ready{attempt.fd.get(), POLLOUT, 0};
      EXPECT_EQ(poll(&ready, 1, 20000), 1);
    }
    out.push_back(std::move(attempt.fd));
  }
  return out;
}

bool has_ended(const Fd& fd, int timeout) {
  pollfd entry{fd.get(), POLLIN, 0};
  std::byte byte;
  return poll(&entry, 1, timeout) == 1 && recv(fd.get(), &byte, 1, 0) <= 0;
}

// More silent connections of either kind than there is room for. Members still connect, and the
// oldest silent ones are closed.
TEST(ControlStrangers, SilentOnesKeepNobodyOut) {
  Nodes nodes = make_nodes(3);
  const auto local = stay_silent(*nodes[0], LinkKind::kLocal, 300);
  const auto tcp = stay_silent(*nodes[0], LinkKind::kTcp, 300);
  Error e = nodes[1]->control->prove_same_host(nodes[0]->id, nodes[0]->control->unix_name(),
                                               in(kTurnedAway));
  EXPECT_FALSE(e) << e.what();
  connect_all(nodes, 1, members_of(nodes, {0, 0, 1}));
  for (const auto* silent : {&local, &tcp}) EXPECT_TRUE(has_ended(silent->front(), 2000));
}

// These connections send the process' id and a group that does not exist here.
TEST(ControlStrangers, HeldOnesKeepNobodyOut) {
  Nodes nodes = make_nodes(2);
  const auto held = stay_silent(*nodes[0], LinkKind::kTcp, 300);
  for (size_t i = 0; i < held.size(); ++i) {
    const auto hello = ControlHello{1000 + i, nodes[0]->id, 77}.frame();
    send(held[i].get(), hello.data(), hello.size(), MSG_NOSIGNAL);
  }
  connect_all(nodes, 1, members_of(nodes, {0, 1}));
}

// Runs `act` in a child as another user and returns its result.
int as_nobody(const std::function<int()>& act) {
  const pid_t child = fork();
  if (child == 0) _exit(setgid(65534) == 0 && setuid(65534) == 0 ? act() : 99);
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ControlStrangers, OfOtherUsersAreHungUpOn) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  Node node;
  EXPECT_EQ(as_nobody([&] {
              const ConnectAttempt attempt = connect_unix(node.control->unix_name());
              return has_ended(attempt.fd, static_cast<int>(kTurnedAway.count())) ? 0 : 1;
            }),
            0);
  EXPECT_EQ(as_nobody([&] { return request_dump(node.control->unix_name()).empty() ? 0 : 1; }), 0);
}

// A job may have restarted its workers for weeks. A slow reader still gets all departures
// that it needs.
TEST(ControlStrangers, ManyFatesBreakNoNewLink) {
  Node node;
  const auto dial = [&](uint64_t id) {
    ConnectAttempt attempt = connect_unix(node.control->unix_name());
    EXPECT_FALSE(attempt.failure);
    return std::pair(std::move(attempt.fd), ControlHello{id, node.id, 1}.frame());
  };
  const auto say = [](const Fd& fd, const std::vector<std::byte>& frame) {
    for (size_t done = 0; done < frame.size();) {
      const auto n = send(fd.get(), frame.data() + done, frame.size() - done, MSG_NOSIGNAL);
      if (n > 0) done += static_cast<size_t>(n);
      if (n < 0) std::this_thread::sleep_for(milliseconds(1));
    }
  };
  const auto [teller, hello] = dial(98);
  say(teller, hello);
  std::vector<ControlMember> members{node.member(0, 0)};
  for (const uint64_t id : {98, 99}) {
    const std::string name = "@ringdist-" + std::to_string(getpid()) + "-" + std::to_string(id);
    members.push_back({static_cast<int>(id), id, 0, name, "127.0.0.1:1", getpid(), "host0"});
  }
  EXPECT_TRUE(node.control->connect_group(1, 0, members, in(milliseconds(100))))
      << "the others do not form it";
  for (uint64_t id = 1000; id < 3000; ++id)
    say(teller, PeerDeparture{id, std::string(4000, 'x')}.frame(FrameType::kLost));
  ASSERT_TRUE(node.events.waits_for_lost(2999, kSoon));
  const auto [late, its_hello] = dial(99);
  say(late, its_hello);
  std::this_thread::sleep_for(milliseconds(300));
  FrameReader reader;
  size_t fates = 0;
  std::array<std::byte, 65536> buffer;
  for (bool beats = false; !beats;) {
    pollfd entry{late.get(), POLLIN, 0};
    ASSERT_EQ(poll(&entry, 1, 20000), 1);
    const auto n = recv(late.get(), buffer.data(), buffer.size(), 0);
    ASSERT_GT(n, 0) << "hung up after " << fates << " fates";
    reader.append(ConstBytes(buffer).first(static_cast<size_t>(n)));
    for (auto frame = reader.next(); frame.ok() && frame.value(); frame = reader.next()) {
      fates += frame.value()->type == FrameType::kLost;
      beats |= frame.value()->type == FrameType::kHeartbeat;
    }
  }
  EXPECT_GT(fates, 100u);
}

}  // namespace
}  // namespace ringdist::test
