// State about other processes: each transition of a PeerLink, exits that were announced, and
// processes that have ended.
#include "control/control_peers.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "control/fake_connection_view.h"
#include "os/epoll.h"

namespace ringdist::test {
namespace {

using Line = PeerLink::State;

TEST(PeerLink, IsMissingOnceItIsAskedFor) {
  PeerLink link;
  EXPECT_EQ(link.state(), Line::kIdle);
  EXPECT_FALSE(link.last_heard());
  link.want(kStart);
  EXPECT_EQ(link.state(), Line::kMissing);
  link.want(kStart + std::chrono::seconds(1));  // still counted from kStart
  EXPECT_TRUE(link.may_dial(/*first=*/true, kStart));
  EXPECT_FALSE(link.may_dial(/*first=*/false, kStart + Milliseconds(299)));
  EXPECT_TRUE(link.may_dial(/*first=*/false, kStart + Milliseconds(300)));
}

TEST(PeerLink, IsNotDialedAllTheTime) {
  PeerLink link;
  link.want(kStart);
  link.dialed(kStart);
  EXPECT_FALSE(link.may_dial(true, kStart + Milliseconds(49)));
  EXPECT_TRUE(link.may_dial(true, kStart + Milliseconds(50)));
  link.failed(ETIMEDOUT, "no answer");
  EXPECT_EQ(link.state(), Line::kMissing);
  EXPECT_EQ(link.failure(), "no answer");
}

TEST(PeerLink, ThatIsThereForgetsWhatFailed) {
  PeerLink link;
  link.want(kStart);
  link.failed(ECONNREFUSED, "refused");
  link.failed(EACCES, "another user");
  EXPECT_TRUE(link.refused());
  EXPECT_EQ(link.rejection(), "another user");
  link.connected(kStart);
  EXPECT_TRUE(link.joined());
  EXPECT_FALSE(link.refused());
  EXPECT_EQ(link.failure() + link.rejection(), "");
  EXPECT_EQ(link.silence(kStart + Milliseconds(5)), Milliseconds(5));
  link.heard(kStart + Milliseconds(4));
  EXPECT_EQ(link.silence(kStart + Milliseconds(5)), Milliseconds(1));
}

// The link is still needed after its connection ended, so either side dials at once.
TEST(PeerLink, ThatEndedIsLookedInto) {
  PeerLink link;
  link.connected(kStart);
  link.ended(/*given_up=*/false, 0, "closed", kStart + Milliseconds(1));
  EXPECT_TRUE(link.joined());
  EXPECT_EQ(link.failure(), "closed");
  EXPECT_TRUE(link.may_dial(/*first=*/false, kStart + Milliseconds(1)));
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(link.deserted()) << i;
    link.failed(ECONNREFUSED, "refused");
  }
  EXPECT_TRUE(link.deserted());
  link.connected(kStart);
  EXPECT_FALSE(link.deserted());
}

TEST(PeerLink, ThatWasGivenUpIsIdle) {
  PeerLink link;
  link.connected(kStart);
  link.ended(/*given_up=*/true, 0, "closed", kStart);
  EXPECT_EQ(link.state(), Line::kIdle);
  link.want(kStart + std::chrono::seconds(1));
  EXPECT_EQ(link.state(), Line::kMissing);
  EXPECT_FALSE(link.may_dial(/*first=*/false, kStart + std::chrono::seconds(1)))
      << "it is the other side's turn again";
}

// A held connection may be rejected later.
TEST(PeerLink, ThatWasTurnedAwayKnowsWhy) {
  PeerLink link;
  link.connected(kStart);
  link.ended(/*given_up=*/false, EACCES, "it gave this process up", kStart);
  EXPECT_EQ(link.rejection(), "it gave this process up");
  link.forget_refusals();
  EXPECT_EQ(link.rejection(), "");
}

TEST(PeerLink, ForgetsItsFailuresUnlessItIsThere) {
  PeerLink missing;
  missing.want(kStart);
  missing.failed(EACCES, "no");
  missing.forget_failures();
  EXPECT_EQ(missing.state(), Line::kIdle);
  EXPECT_EQ(missing.rejection(), "");
  PeerLink joined;
  joined.connected(kStart);
  joined.ended(false, 0, "closed", kStart);
  joined.forget_failures();
  EXPECT_TRUE(joined.joined());
  EXPECT_EQ(joined.failure(), "closed");
}

TEST(PeerLink, IsForgivenOurOwnPauseUpToNow) {
  PeerLink link;
  link.discount_pause(std::chrono::seconds(5), kStart);
  EXPECT_FALSE(link.last_heard());
  link.connected(kStart);
  link.discount_pause(std::chrono::seconds(5), kStart + std::chrono::seconds(7));
  EXPECT_EQ(link.silence(kStart + std::chrono::seconds(7)), std::chrono::seconds(2));
  link.discount_pause(std::chrono::seconds(5), kStart + std::chrono::seconds(7));
  EXPECT_EQ(link.silence(kStart + std::chrono::seconds(7)), Duration(0));
}

TEST(ControlLineDeathTest, WhatItIsNotAskedForItDoesNotDo) {
  PeerLink link;
  EXPECT_DEATH((void)link.may_dial(true, kStart), "was not requested");
  EXPECT_DEATH(link.dialed(kStart), "was not requested");
  link.want(kStart);
  EXPECT_DEATH((void)link.silence(kStart), "is not connected");
  EXPECT_DEATH((void)ControlPeer().exiting_for(kStart), "has not announced");
}

class ProcessesTest : public testing::Test {
 protected:
  Result<Epoll> epoll_ = Epoll::create();
  ControlPeerTable processes_{epoll_.value()};
};

TEST_F(ProcessesTest, AreKnownUntilForgotten) {
  EXPECT_EQ(processes_.find(2), nullptr);
  EXPECT_FALSE(processes_.exiting(2));
  processes_[3].pid = 103;
  (void)processes_[2];
  EXPECT_EQ(processes_.ids(), (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(processes_.find(3)->pid, 103);
  processes_.forget(3);
  processes_.forget(3);
  EXPECT_EQ(processes_.find(3), nullptr);
}

TEST_F(ProcessesTest, SayThatTheyExit) {
  processes_[2].exits(kStart);
  EXPECT_TRUE(processes_.exiting(2));
  EXPECT_EQ(processes_[2].exiting_for(kStart + Milliseconds(3)), Milliseconds(3));
  EXPECT_FALSE(processes_.exiting(3));
}

TEST_F(ProcessesTest, ForgetTheFailuresOfAll) {
  for (const uint64_t id : {2, 3}) processes_[id].link(LinkKind::kTcp).failed(EACCES, "no");
  processes_.forget_failures();
  for (const uint64_t id : {2, 3}) EXPECT_EQ(processes_[id].link(LinkKind::kTcp).rejection(), "");
}

// A child process that ends when its pipe is closed.
class Child {
 public:
  Child() {
    EXPECT_EQ(pipe(ends_), 0);
    pid_ = fork();
    if (pid_ != 0) return;
    close(ends_[1]);
    char byte = 0;
    _exit(read(ends_[0], &byte, 1) == 0 ? 0 : 1);
  }
  ~Child() {
    end();
    close(ends_[0]);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  void end() {
    if (ends_[1] >= 0) close(std::exchange(ends_[1], -1));
  }

 private:
  int ends_[2] = {-1, -1};
  pid_t pid_ = -1;
};

TEST_F(ProcessesTest, TheKernelTellsOfTheirEnd) {
  Child child;
  processes_.watch_exit(2, child.pid());
  processes_.watch_exit(2, child.pid());  // a second connection to a watched process
  EXPECT_EQ(processes_[2].pid, child.pid());
  EXPECT_TRUE(epoll_.value().wait(Duration(0)).empty());
  child.end();
  const auto events = epoll_.value().wait(std::chrono::seconds(10));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(processes_.ended(events[0].key), 2u);
  EXPECT_FALSE(processes_.ended(events[0].key + 1));
  const uint64_t key = events[0].key;
  processes_.forget(2);
  EXPECT_FALSE(processes_.ended(key));
  EXPECT_TRUE(epoll_.value().wait(Duration(0)).empty());
}

// Until there is a common group, any process of the user can connect in the name of another.
TEST_F(ProcessesTest, TheLatestPidIsWatched) {
  const Child impostor;
  const Child peer;
  processes_.watch_exit(2, impostor.pid());
  processes_.watch_exit(2, peer.pid());
  EXPECT_EQ(processes_[2].pid, peer.pid());
  kill(impostor.pid(), SIGKILL);
  EXPECT_TRUE(epoll_.value().wait(Milliseconds(100)).empty());
  kill(peer.pid(), SIGKILL);
  const auto events = epoll_.value().wait(std::chrono::seconds(10));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(processes_.ended(events[0].key), 2u);
}

TEST_F(ProcessesTest, WhatCannotBeSeenIsNotWatched) {
  processes_.watch_exit(2, 0);  // in another pid namespace
  EXPECT_FALSE(processes_[2].pidfd);
  EXPECT_TRUE(epoll_.value().wait(Duration(0)).empty());
}

}  // namespace
}  // namespace ringdist::test
