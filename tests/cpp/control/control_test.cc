// Several control planes in one process: connecting, floods, leaving, dumps.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <array>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "control/control_thread.h"
#include "control/fixture.h"
#include "os/socket.h"
#include "support/test_key.h"
#include "support/threads.h"

namespace ringdist::test {
namespace {

TEST(Control, ProvesSameHost) {
  Node a, b;
  Error e = a.control->prove_same_host(b.id, b.control->unix_name(), in(kSoon));
  EXPECT_FALSE(e) << e.what();
  EXPECT_FALSE(a.control->prove_same_host(b.id, b.control->unix_name(), in(kSoon)));
  EXPECT_FALSE(b.control->prove_same_host(a.id, a.control->unix_name(), in(kSoon)));
  EXPECT_FALSE(a.control->prove_same_host(a.id, "", in(kSoon)));
}

// exit() ends OpenSSL, so no thread may use it then.
TEST(Control, StopEndsTheThreadForHandshakes) {
  Recorder events;
  auto control =
      ControlThread::start(random_id(), config_with_timeout(10), "127.0.0.1", events, key_of(1));
  ASSERT_TRUE(control.ok()) << control.error().message();
  EXPECT_EQ(count_threads("ringdist-tls"), 1);
  control.value()->leave(/*process_ends=*/true);
  control.value()->stop();
  EXPECT_EQ(count_threads("ringdist-tls"), 0);
}

TEST(Control, ProofFailsAtOnceWhereNobodyListens) {
  Node a;
  TimePoint begin = Clock::now();
  Error e = a.control->prove_same_host(77, "@ringdist-nobody", in(kSoon));
  ASSERT_TRUE(e);
  EXPECT_NE(e.message().find("does not share this host"), std::string::npos) << e.message();
  EXPECT_LT(Clock::now() - begin, milliseconds(10000));
}

TEST(Control, ProofFailsForAnotherProcess) {
  Node a, b;
  Error e = a.control->prove_same_host(77, b.control->unix_name(), in(milliseconds(300)));
  ASSERT_TRUE(e);
  EXPECT_NE(e.message().find("did not answer"), std::string::npos) << e.message();
}

TEST(Control, ProofEndsAtTheDeadline) {
  Node a;
  auto deaf = listen_unix("@ringdist-deaf-" + std::to_string(getpid()));
  ASSERT_TRUE(deaf.ok());
  TimePoint begin = Clock::now();
  Error e = a.control->prove_same_host(77, "@ringdist-deaf-" + std::to_string(getpid()),
                                       in(milliseconds(300)));
  ASSERT_TRUE(e);
  EXPECT_EQ(e.kind(), ErrorKind::kTimeout);
  EXPECT_LT(Clock::now() - begin, milliseconds(10000));
}

// Notices wait for a common group. Its links take the place of the proofs.
TEST(Control, SimultaneousProofsMeet) {
  for (int round = 0; round < 30; ++round) {
    const Nodes nodes = make_nodes(2);
    Node& a = *nodes[0];
    Node& b = *nodes[1];
    auto other = std::async(std::launch::async, [&] {
      return a.control->prove_same_host(b.id, b.control->unix_name(), in(kSoon));
    });
    Error e = b.control->prove_same_host(a.id, a.control->unix_name(), in(kSoon));
    EXPECT_FALSE(e) << e.what();
    e = other.get();
    EXPECT_FALSE(e) << e.what();
    a.control->flood(to_bytes("from a"));
    b.control->flood(to_bytes("from b"));
    EXPECT_FALSE(a.events.waits_for_floods(1, milliseconds(round == 0 ? 300 : 0)));
    EXPECT_FALSE(b.events.waits_for_floods(1, milliseconds(0)));
    connect_all(nodes, 1, members_of(nodes, {0, 0}));
    EXPECT_TRUE(a.events.waits_for_floods(1, kSoon));
    EXPECT_TRUE(b.events.waits_for_floods(1, kSoon));
  }
}

TEST(Control, FloodReachesEachOnce) {
  Nodes nodes = make_nodes(5);
  connect_all(nodes, 1, members_of(nodes, {0, 0, 0, 0, 0}));
  for (int i = 0; i < 20; ++i) nodes[0]->control->flood(to_bytes(std::to_string(i)));
  for (size_t i = 1; i < nodes.size(); ++i)
    EXPECT_TRUE(nodes[i]->events.waits_for_floods(20, kSoon));
  std::this_thread::sleep_for(milliseconds(100));
  for (size_t i = 1; i < nodes.size(); ++i) EXPECT_EQ(nodes[i]->events.floods().size(), 20u);
  EXPECT_TRUE(nodes[0]->events.floods().empty());
}

TEST(Control, ManyConnectAtOnce) {
  Nodes nodes = make_nodes(16);
  std::vector<int> host;
  for (int i = 0; i < 16; ++i) host.push_back(i / 8);
  connect_all(nodes, 1, members_of(nodes, host));
  for (auto& node : nodes) node->control->flood(to_bytes("hello"));
  for (auto& node : nodes) EXPECT_TRUE(node->events.waits_for_floods(15, kSoon));
  for (auto& node : nodes) EXPECT_EQ(node->events.lost_count(), 0u);
}

TEST(Control, FloodPassesAChain) {
  Nodes nodes = make_nodes(5);
  for (size_t i = 0; i + 1 < nodes.size(); ++i)
    connect_all(nodes, 10 + i, {nodes[i]->member(0, 0), nodes[i + 1]->member(1, 0)});
  nodes[0]->control->flood(to_bytes("along"));
  for (size_t i = 1; i < nodes.size(); ++i)
    EXPECT_TRUE(nodes[i]->events.waits_for_floods(1, kSoon));
}

TEST(Control, HostsAreLinked) {
  Nodes nodes = make_nodes(8);
  connect_all(nodes, 1, members_of(nodes, {0, 0, 1, 1, 2, 2, 3, 3}));
  nodes[7]->control->flood(to_bytes("across"));
  for (size_t i = 0; i < 7; ++i) EXPECT_TRUE(nodes[i]->events.waits_for_floods(1, kSoon)) << i;
}

TEST(Control, RanksOfOneContextShareItsConnections) {
  Node a, b;
  std::vector<ControlMember> members{a.member(0, 0), a.member(1, 0), b.member(2, 0)};
  auto other = std::async(std::launch::async,
                          [&] { return b.control->connect_group(1, 2, members, in(kSoon)); });
  EXPECT_FALSE(a.control->connect_group(1, 0, members, in(kSoon)));
  EXPECT_FALSE(a.control->connect_group(1, 1, members, in(kSoon)));
  EXPECT_FALSE(other.get());
  a.control->disconnect_group(1, 1);
  EXPECT_TRUE(dump_shows(a, "group 0000000000000001"));
  a.control->disconnect_group(1, 0);
  EXPECT_TRUE(dump_shows(a, "group 0000000000000001", false));
}

// Members wait for a process that has not entered the group yet, and it receives what it missed.
TEST(Control, LateMemberIsAwaitedAndCaughtUp) {
  Nodes nodes = make_nodes(2);
  auto members = members_of(nodes, {0, 1});
  for (size_t late : {1, 0}) {
    Node& early = *nodes[1 - late];
    auto waiting = std::async(std::launch::async, [&] {
      return early.control->connect_group(late, static_cast<int>(1 - late), members, in(kSoon));
    });
    EXPECT_EQ(waiting.wait_for(milliseconds(100)), std::future_status::timeout);
    early.control->flood(to_bytes("early"));
    Error e = nodes[late]->control->connect_group(late, static_cast<int>(late), members, in(kSoon));
    EXPECT_FALSE(e) << e.what();
    e = waiting.get();
    EXPECT_FALSE(e) << e.what();
    EXPECT_TRUE(nodes[late]->events.waits_for_floods(1, kSoon));
  }
}

TEST(Control, UnreachableMemberIsNamed) {
  Node a;
  for (int host : {0, 1}) {
    std::vector<ControlMember> members{
        a.member(0, 0), {1, 77, host, "@ringdist-nobody", "127.0.0.1:1", 4242, "elsewhere"}};
    const auto nonce = static_cast<uint64_t>(host) + 1;
    Error e = a.control->connect_group(nonce, 0, members, in(milliseconds(2000)));
    ASSERT_TRUE(e);
    EXPECT_EQ(e.ranks(), std::vector<int>{1});
    EXPECT_NE(e.message().find("rank 1 (pid 4242 on host elsewhere)"), std::string::npos);
    const std::string why = host == 0 ? "is lost: Connection closed by peer" : "Connection refused";
    EXPECT_NE(e.message().find(why), std::string::npos) << e.message();
  }
}

TEST(Control, LeavingIsNotDying) {
  Nodes nodes = make_nodes(5);
  connect_all(nodes, 1, members_of(nodes, {0, 0, 1, 1, 1}));
  TimePoint begin = Clock::now();
  nodes[4]->control->leave();  // it is no representative, so other hosts learn of it indirectly
  EXPECT_LT(Clock::now() - begin, milliseconds(10000));
  nodes[4]->control->stop();
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(nodes[i]->events.waits_for_left(nodes[4]->id, kSoon)) << i;
    EXPECT_EQ(nodes[i]->events.lost_count(), 0u);
  }
}

TEST(Control, NextProcessStepsInForARepresentative) {
  Nodes nodes = make_nodes(6);
  connect_all(nodes, 1, members_of(nodes, {0, 0, 0, 1, 1, 1}));
  nodes[0]->control->leave();
  nodes[1]->control->leave();
  nodes[3]->control->leave();
  EXPECT_TRUE(dump_shows(*nodes[2], "tcp open"));
  EXPECT_TRUE(dump_shows(*nodes[5], "tcp open"));
  nodes[2]->control->flood(to_bytes("still"));
  EXPECT_TRUE(nodes[4]->events.waits_for_floods(1, kSoon));
  EXPECT_TRUE(nodes[5]->events.waits_for_floods(1, kSoon));
}

TEST(Control, AllLeaveAtOnce) {
  Nodes nodes = make_nodes(6);
  connect_all(nodes, 1, members_of(nodes, {0, 0, 0, 1, 1, 1}));
  std::vector<std::future<void>> done;
  TimePoint begin = Clock::now();
  for (auto& node : nodes)
    done.push_back(std::async(std::launch::async, [&] {
      node->control->leave();
      node->control->stop();
    }));
  for (auto& d : done) d.get();
  EXPECT_LT(Clock::now() - begin, milliseconds(10000));
  for (auto& node : nodes) EXPECT_EQ(node->events.lost_count(), 0u);
}

TEST(Control, ConnectionsCloseWhenNobodyNeedsThem) {
  Nodes nodes = make_nodes(3);
  connect_all(nodes, 1, members_of(nodes, {0, 0, 1}));
  connect_all(nodes, 2, {nodes[0]->member(0, 0), nodes[1]->member(1, 0)});
  for (int rank = 0; rank < 3; ++rank) nodes[rank]->control->disconnect_group(1, rank);
  EXPECT_TRUE(dump_shows(*nodes[2], "tcp open", false));
  EXPECT_TRUE(dump_shows(*nodes[0], "local open"));
  nodes[0]->control->disconnect_group(2, 0);
  nodes[1]->control->disconnect_group(2, 1);
  EXPECT_TRUE(dump_shows(*nodes[0], "local open", false));
  connect_all(nodes, 3, members_of(nodes, {0, 0, 1}));
  nodes[2]->control->flood(to_bytes("again"));
  EXPECT_TRUE(nodes[0]->events.waits_for_floods(1, kSoon));
  EXPECT_TRUE(nodes[1]->events.waits_for_floods(1, kSoon));
  for (auto& node : nodes) EXPECT_EQ(node->events.lost_count() + node->events.left_count(), 0u);
}

TEST(Control, AnswersDumpRequests) {
  Nodes nodes = make_nodes(2);
  connect_all(nodes, 1, members_of(nodes, {0, 0}));
  std::string text = request_dump(nodes[0]->control->unix_name());
  EXPECT_NE(text.find("dump of the owner"), std::string::npos) << text;
  EXPECT_NE(text.find("local open"), std::string::npos) << text;
  EXPECT_NE(text.find("pid " + std::to_string(getpid())), std::string::npos) << text;
}

TEST(Control, PrintsTheDumpOnSigusr1) {
  Node node;
  std::string path = testing::TempDir() + "/control_dump_" + std::to_string(getpid());
  int saved = dup(STDERR_FILENO);
  int file = open(path.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
  dup2(file, STDERR_FILENO);
  raise(SIGUSR1);
  std::string text;
  for (TimePoint end = in(kSoon);
       Clock::now() < end && text.find("control plane") == std::string::npos;) {
    std::this_thread::sleep_for(milliseconds(20));
    std::ifstream in(path);
    std::stringstream all;
    all << in.rdbuf();
    text = all.str();
  }
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(file);
  unlink(path.c_str());
  EXPECT_NE(text.find("dump of the owner"), std::string::npos) << text;
}

// If no reader empties stderr, the process must not go silent.
TEST(Control, AFullStderrHoldsUpNobody) {
  Nodes nodes = make_nodes(2);
  connect_all(nodes, 1, members_of(nodes, {0, 0}));
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  std::array<char, 4096> filling;
  filling.fill('.');
  while (write(ends[1], filling.data(), filling.size()) > 0) {
  }
  fcntl(ends[1], F_SETFL, 0);
  const int saved = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  raise(SIGUSR1);
  raise(SIGUSR1);
  std::this_thread::sleep_for(milliseconds(200));
  for (auto& node : nodes) EXPECT_NE(request_dump(node->control->unix_name()), "");
  nodes[0]->control->flood(to_bytes("alive"));
  EXPECT_TRUE(nodes[1]->events.waits_for_floods(1, kSoon));
  nodes[1]->control->stop();  // stop() does not wait for a reader either
  // The requested dump appears as soon as a reader empties the pipe.
  std::string text;
  std::array<char, 65536> buffer;
  for (TimePoint end = in(kSoon);
       Clock::now() < end && text.find("control plane of context") == std::string::npos;) {
    const auto n = read(ends[0], buffer.data(), buffer.size());
    if (n > 0) text.append(buffer.data(), static_cast<size_t>(n));
    if (n <= 0) std::this_thread::sleep_for(milliseconds(10));
  }
  dup2(saved, STDERR_FILENO);
  for (int fd : {saved, ends[0], ends[1]}) close(fd);
  EXPECT_NE(text.find("control plane of context"), std::string::npos);
}

TEST(Control, CallsAfterStopAreErrors) {
  Node a, b;
  a.control->leave();
  EXPECT_TRUE(a.control->prove_same_host(b.id, b.control->unix_name(), in(kSoon)));
  a.control->stop();
  a.control->stop();
  EXPECT_TRUE(a.control->connect_group(1, 0, {a.member(0, 0)}, in(kSoon)));
  a.control->flood(to_bytes("x"));
  a.control->leave();
}

TEST(Control, StopAnswersWhoWaits) {
  Node a;
  std::vector<ControlMember> members{a.member(0, 0), {1, 77, 1, "", "127.0.0.1:1", 1, "x"}};
  auto waiting = std::async(std::launch::async,
                            [&] { return a.control->connect_group(1, 0, members, in(3 * kSoon)); });
  std::this_thread::sleep_for(milliseconds(100));
  a.control->stop();
  ASSERT_EQ(waiting.wait_for(kSoon), std::future_status::ready);
  EXPECT_TRUE(waiting.get());
}

TEST(Control, AForkedChildLeavesItAlone) {
  Nodes nodes = make_nodes(2);
  connect_all(nodes, 1, members_of(nodes, {0, 0}));
  pid_t child = fork();
  if (child == 0) {
    Error e = nodes[0]->control->connect_group(2, 0, {}, in(kSoon));
    nodes[0]->control->flood(to_bytes("from the child"));
    nodes[0]->control->leave();
    (void)nodes[0]->control.release();
    _exit(e ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  nodes[0]->control->flood(to_bytes("from the parent"));
  EXPECT_TRUE(nodes[1]->events.waits_for_floods(1, kSoon));
  EXPECT_EQ(nodes[1]->events.floods(), std::multiset<std::string>{"from the parent"});
}

// A delegate that has no memory for floods, and at first none for the failure of the control plane.
class DelegateWithoutMemory final : public Recorder {
 public:
  void on_flood(uint64_t, std::span<const std::byte>) override { throw std::bad_alloc(); }
  void on_control_failed(const Error& cause) override {
    if (std::exchange(throws_, false)) throw std::bad_alloc();
    Recorder::on_control_failed(cause);
  }

 private:
  bool throws_ = true;
};

TEST(Control, AnExceptionEndsTheControlPlaneAndIsReported) {
  DelegateWithoutMemory delegate;
  const uint64_t id = random_id();
  auto started = ControlThread::start(id, config_with_timeout(10), "127.0.0.1", delegate);
  ASSERT_TRUE(started.ok());
  ControlThread& control = *started.value();
  Node other;
  const ControlMember mine{0, id, 0, control.unix_name(), control.tcp_address(), getpid(), "host0"};
  const std::vector<ControlMember> members{mine, other.member(1, 0)};
  auto theirs = std::async(std::launch::async,
                           [&] { return other.control->connect_group(1, 1, members, in(kSoon)); });
  EXPECT_FALSE(control.connect_group(1, 0, members, in(kSoon)));
  EXPECT_FALSE(theirs.get());
  // A request that is pending when the thread fails gets an answer, too.
  auto pending = std::async(std::launch::async, [&] {
    return control.prove_same_host(77, "@ringdist-nobody-" + std::to_string(getpid()),
                                   in(std::chrono::minutes(1)));
  });
  other.control->flood(to_bytes("it throws"));
  EXPECT_TRUE(delegate.waits_for_failure(kSoon));
  EXPECT_TRUE(other.events.waits_for_lost(id, kSoon));
  EXPECT_NE(other.events.cause(id).find("its control plane has failed"), std::string::npos)
      << other.events.cause(id);
  EXPECT_TRUE(pending.get());
  EXPECT_EQ(control.connect_group(2, 0, members, in(kSoon)).kind(), ErrorKind::kAborted);
  control.disconnect_group(1, 0);
  control.leave();
  control.stop();
}

}  // namespace
}  // namespace ringdist::test
