// Control planes in separate processes: deaths, stops, silence. The tests print the times.
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "control/fixture.h"

namespace ringdist::test {
namespace {

using Helpers = std::vector<std::unique_ptr<Helper>>;

// Limit of a wait for a death or an exit: less than the peer timeout of 10 s, after which a process
// counts as lost or left anyway.
constexpr milliseconds kSoonKnown(8000);

Helpers make_helpers(size_t count, double peer_timeout = 10) {
  Helpers out;
  for (size_t i = 0; i < count; ++i) out.push_back(std::make_unique<Helper>(peer_timeout));
  return out;
}

// Connects a group in which rank 0 is `node` and rank i + 1 is helper i.
std::vector<ControlMember> connect_with(Node& node, Helpers& helpers,
                                        const std::vector<int>& host) {
  std::vector<ControlMember> members{node.member(0, host[0])};
  for (size_t i = 0; i < helpers.size(); ++i)
    members.push_back(helpers[i]->member(static_cast<int>(i) + 1, host[i + 1]));
  for (size_t i = 0; i < helpers.size(); ++i)
    helpers[i]->begin_connect(1, static_cast<int>(i) + 1, members);
  Error e = node.control->connect_group(1, 0, members, in(milliseconds(8000)));
  EXPECT_FALSE(e) << e.what();
  for (auto& helper : helpers) EXPECT_EQ(helper->finish_connect(), "ok");
  return members;
}

// Returns the milliseconds until `node` has detected the loss, or -1.
double time_to_loss(Node& node, uint64_t id, TimePoint begin, milliseconds limit) {
  if (!node.events.waits_for_lost(id, limit)) return -1;
  return seconds(Clock::now() - begin) * 1000;
}

// Returns the cause of the loss of process `id` as soon as the helper has it, or "".
std::string cause_told(Helper& helper, uint64_t id) {
  std::string out;
  for (TimePoint end = in(kSoon); out.empty() && Clock::now() < end;) {
    out = helper.cause_of(id);
    std::this_thread::sleep_for(milliseconds(5));
  }
  return out;
}

TEST(ControlProcess, DeathIsSeenWhileAChildHoldsTheSockets) {
  Helpers helpers = make_helpers(2);
  Node node;
  auto members = connect_with(node, helpers, {0, 0, 0});
  helpers[0]->spawn_holder();
  TimePoint begin = Clock::now();
  helpers[0]->signal(SIGKILL);
  double ms = time_to_loss(node, members[1].context_id, begin, kSoonKnown);
  std::printf("local death seen after %.2f ms\n", ms);
  EXPECT_GE(ms, 0);
  std::string cause = node.events.cause(members[1].context_id);
  EXPECT_EQ(cause,
            "its process (pid " + std::to_string(helpers[0]->pid()) + " on host host0) died");
  EXPECT_EQ(cause_told(*helpers[1], members[1].context_id), cause);
}

TEST(ControlProcess, ShutdownThenExitIsLeaving) {
  Helpers helpers = make_helpers(1);
  Node node;
  auto members = connect_with(node, helpers, {0, 0});
  helpers[0]->leave_and_exit();
  EXPECT_TRUE(node.events.waits_for_left(members[1].context_id, kSoonKnown));
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_EQ(node.events.lost_count(), 0u);
}

// On the same host the kernel reports the end, even if a child keeps the sockets open. From
// another host, the end of the connection shows it.
TEST(ControlProcess, AnExitIsToldWhenTheProcessHasEnded) {
  for (int host : {0, 1}) {
    Helpers helpers = make_helpers(1);
    Node node;
    auto members = connect_with(node, helpers, {0, host});
    if (host == 0) helpers[0]->spawn_holder();
    helpers[0]->begin_exit();
    EXPECT_FALSE(node.events.waits_for_left(members[1].context_id, milliseconds(500))) << host;
    helpers[0]->end();
    EXPECT_TRUE(node.events.waits_for_left(members[1].context_id, kSoonKnown)) << host;
    EXPECT_EQ(node.events.lost_count(), 0u);
  }
}

TEST(ControlProcess, AnExitThatTakesTooLongCountsAsOver) {
  Helpers helpers = make_helpers(1, 2);
  Node node(2);
  auto members = connect_with(node, helpers, {0, 0});
  helpers[0]->begin_exit();
  EXPECT_TRUE(node.events.waits_for_left(members[1].context_id, kSoonKnown));
  EXPECT_EQ(node.events.lost_count(), 0u);
}

TEST(ControlProcess, StoppedProcessIsSilent) {
  Helpers helpers = make_helpers(1, 2.0);
  Node node(2.0);
  auto members = connect_with(node, helpers, {0, 0});
  TimePoint begin = Clock::now();
  helpers[0]->signal(SIGSTOP);
  double ms = time_to_loss(node, members[1].context_id, begin, kSoonKnown);
  std::printf("stopped process given up after %.0f ms (timeout 2 s)\n", ms);
  EXPECT_GE(ms, 1000);
  EXPECT_NE(node.events.cause(members[1].context_id).find("has been silent for "),
            std::string::npos);
  // When it runs again, it receives the report of its own loss.
  helpers[0]->signal(SIGCONT);
  const std::string told = cause_told(*helpers[0], members[1].context_id);
  EXPECT_NE(told.find("has been silent"), std::string::npos);
}

TEST(ControlProcess, RemoteDeathIsToldAcrossHosts) {
  Helpers helpers = make_helpers(3);
  Node node;
  auto members = connect_with(node, helpers, {0, 1, 1, 1});
  helpers[2]->spawn_holder();
  TimePoint begin = Clock::now();
  helpers[2]->signal(SIGKILL);  // neither a representative nor connected to this process
  double ms = time_to_loss(node, members[3].context_id, begin, kSoonKnown);
  std::printf("death on another host known after %.2f ms\n", ms);
  EXPECT_GE(ms, 0);
}

TEST(ControlProcess, DeathOfTheOnlyProcessOfAHost) {
  for (bool dialer : {true, false}) {
    Helpers helpers = make_helpers(1);
    Node node;
    auto members = connect_with(node, helpers, dialer ? std::vector{0, 1} : std::vector{1, 0});
    TimePoint begin = Clock::now();
    helpers[0]->signal(SIGKILL);
    double ms = time_to_loss(node, members[1].context_id, begin, kSoonKnown);
    std::printf("death of a host's only process seen after %.0f ms\n", ms);
    EXPECT_GE(ms, 0) << request_dump(node.control->unix_name());
    EXPECT_NE(node.events.cause(members[1].context_id).find("died"), std::string::npos);
  }
}

TEST(ControlProcess, BothRepresentativesDie) {
  Helpers helpers = make_helpers(3);
  Node node;
  auto members = connect_with(node, helpers, {0, 1, 1, 1});
  TimePoint begin = Clock::now();
  helpers[0]->signal(SIGKILL);
  helpers[1]->signal(SIGKILL);
  double first = time_to_loss(node, members[1].context_id, begin, kSoonKnown);
  double second = time_to_loss(node, members[2].context_id, begin, kSoonKnown);
  std::printf("both representatives known dead after %.0f and %.0f ms\n", first, second);
  EXPECT_GE(std::min(first, second), 0);
  helpers[2]->flood("alive");
  EXPECT_TRUE(node.events.waits_for_floods(1, kSoon));
  EXPECT_EQ(node.events.lost_count(), 2u);
}

TEST(ControlProcess, StoppedRepresentativeIsNotItsHost) {
  Helpers helpers = make_helpers(3, 2.0);
  Node node(2.0);
  auto members = connect_with(node, helpers, {0, 1, 1, 1});
  TimePoint begin = Clock::now();
  helpers[0]->signal(SIGSTOP);
  double ms = time_to_loss(node, members[1].context_id, begin, kSoonKnown);
  std::printf("stopped representative given up after %.0f ms (timeout 2 s)\n", ms);
  EXPECT_GE(ms, 1000);
  EXPECT_NE(node.events.cause(members[1].context_id).find("has been silent"), std::string::npos);
  std::this_thread::sleep_for(milliseconds(1500));
  EXPECT_EQ(node.events.lost_count(), 1u);
}

TEST(ControlProcess, SilentHostIsLostWhole) {
  Helpers helpers = make_helpers(3, 2.0);
  Node node(2.0);
  auto members = connect_with(node, helpers, {0, 1, 1, 1});
  TimePoint begin = Clock::now();
  for (auto& helper : helpers) helper->signal(SIGSTOP);
  for (size_t i = 1; i <= 3; ++i) {
    double ms = time_to_loss(node, members[i].context_id, begin, kSoonKnown);
    std::printf("process of a silent host given up after %.0f ms (timeout 2 s)\n", ms);
    EXPECT_GE(ms, 1000);
    EXPECT_NE(node.events.cause(members[i].context_id).find("host host1 fell silent"),
              std::string::npos);
  }
}

// All processes are stopped together, as when a machine is suspended. The first one to wake must
// not declare the others lost.
TEST(ControlProcess, OwnPauseIsForgiven) {
  Helpers helpers = make_helpers(2, 2.0);
  uint64_t nonce = 1;
  std::vector<ControlMember> members{helpers[0]->member(0, 0), helpers[1]->member(1, 0)};
  for (int i = 0; i < 2; ++i) helpers[static_cast<size_t>(i)]->begin_connect(nonce, i, members);
  for (auto& helper : helpers) EXPECT_EQ(helper->finish_connect(), "ok");
  for (auto& helper : helpers) helper->signal(SIGSTOP);
  std::this_thread::sleep_for(milliseconds(3000));
  helpers[0]->signal(SIGCONT);
  std::this_thread::sleep_for(milliseconds(400));
  helpers[1]->signal(SIGCONT);
  std::this_thread::sleep_for(milliseconds(500));
  for (auto& helper : helpers) EXPECT_EQ(helper->count_lost(), "0");
}

// A process that does not read is disconnected without blocking others, and still has the full
// peer timeout.
TEST(ControlProcess, AStoppedReaderBlocksNobody) {
  Helpers helpers = make_helpers(2, 2.0);
  Node node(2.0);
  auto members = connect_with(node, helpers, {0, 0, 0});
  TimePoint begin = Clock::now();
  helpers[0]->signal(SIGSTOP);
  for (int i = 0; i < 16; ++i) node.control->flood(to_bytes(std::string(1 << 19, 'x')));
  node.control->flood(to_bytes("last"));
  double ms = time_to_loss(node, members[1].context_id, begin, kSoonKnown);
  EXPECT_GE(ms, 1000);
  helpers[1]->flood("alive");
  EXPECT_TRUE(node.events.waits_for_floods(1, kSoon));
  EXPECT_EQ(node.events.lost_count(), 1u);
}

TEST(ControlProcess, IdleCostsLittle) {
  Helpers helpers = make_helpers(4);
  Node node;
  connect_with(node, helpers, {0, 0, 0, 1, 1});
  timespec before{}, after{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  std::this_thread::sleep_for(milliseconds(2000));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  double used = static_cast<double>(after.tv_sec - before.tv_sec) +
                static_cast<double>(after.tv_nsec - before.tv_nsec) * 1e-9;
  std::printf("idle with 4 peers: %.2f %% of a core\n", used / 2 * 100);
  EXPECT_LT(used / 2, 0.05);  // a sanitizer build is slow; normal builds stay far below 1 %
}

}  // namespace
}  // namespace ringdist::test
