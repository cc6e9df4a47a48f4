// What is known of other processes: each transition of a line, who exits, who has ended.
#include "control/processes.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "control/fake_reach.h"
#include "os/epoll.h"

namespace ringdist::test {
namespace {

using Line = PeerLink::State;

TEST(PeerLink, IsMissingOnceItIsAskedFor) {
  PeerLink line;
  EXPECT_EQ(line.state(), Line::kIdle);
  EXPECT_FALSE(line.last_heard());
  line.want(kStart);
  EXPECT_EQ(line.state(), Line::kMissing);
  line.want(kStart + std::chrono::seconds(1));  // since kStart, still
  EXPECT_TRUE(line.may_dial(/*first=*/true, kStart));
  EXPECT_FALSE(line.may_dial(/*first=*/false, kStart + Milliseconds(299)));
  EXPECT_TRUE(line.may_dial(/*first=*/false, kStart + Milliseconds(300)));
}

TEST(PeerLink, IsNotDialedAllTheTime) {
  PeerLink line;
  line.want(kStart);
  line.dialed(kStart);
  EXPECT_FALSE(line.may_dial(true, kStart + Milliseconds(49)));
  EXPECT_TRUE(line.may_dial(true, kStart + Milliseconds(50)));
  line.failed(ETIMEDOUT, "no answer");
  EXPECT_EQ(line.state(), Line::kMissing);
  EXPECT_EQ(line.failure(), "no answer");
}

TEST(PeerLink, ThatIsThereForgetsWhatFailed) {
  PeerLink line;
  line.want(kStart);
  line.failed(ECONNREFUSED, "refused");
  line.failed(EACCES, "another user");
  EXPECT_TRUE(line.refused());
  EXPECT_EQ(line.rejection(), "another user");
  line.connected(kStart);
  EXPECT_TRUE(line.joined());
  EXPECT_FALSE(line.refused());
  EXPECT_EQ(line.failure() + line.rejection(), "");
  EXPECT_EQ(line.silence(kStart + Milliseconds(5)), Milliseconds(5));
  line.heard(kStart + Milliseconds(4));
  EXPECT_EQ(line.silence(kStart + Milliseconds(5)), Milliseconds(1));
}

// Somebody asks for it still: either side dials at once.
TEST(PeerLink, ThatEndedIsLookedInto) {
  PeerLink line;
  line.connected(kStart);
  line.ended(/*given_up=*/false, 0, "closed", kStart + Milliseconds(1));
  EXPECT_TRUE(line.joined());
  EXPECT_EQ(line.failure(), "closed");
  EXPECT_TRUE(line.may_dial(/*first=*/false, kStart + Milliseconds(1)));
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(line.deserted()) << i;
    line.failed(ECONNREFUSED, "refused");
  }
  EXPECT_TRUE(line.deserted());
  line.connected(kStart);
  EXPECT_FALSE(line.deserted());
}

TEST(PeerLink, ThatWasGivenUpIsIdle) {
  PeerLink line;
  line.connected(kStart);
  line.ended(/*given_up=*/true, 0, "closed", kStart);
  EXPECT_EQ(line.state(), Line::kIdle);
  line.want(kStart + std::chrono::seconds(1));
  EXPECT_EQ(line.state(), Line::kMissing);
  EXPECT_FALSE(line.may_dial(/*first=*/false, kStart + std::chrono::seconds(1)))
      << "it is the other side's turn again";
}

// A connection that was held may be refused in the end.
TEST(PeerLink, ThatWasTurnedAwayKnowsWhy) {
  PeerLink line;
  line.connected(kStart);
  line.ended(/*given_up=*/false, EACCES, "it gave this process up", kStart);
  EXPECT_EQ(line.rejection(), "it gave this process up");
  line.forget_refusals();
  EXPECT_EQ(line.rejection(), "");
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
  PeerLink line;
  line.forgive(std::chrono::seconds(5), kStart);
  EXPECT_FALSE(line.last_heard());
  line.connected(kStart);
  line.forgive(std::chrono::seconds(5), kStart + std::chrono::seconds(7));
  EXPECT_EQ(line.silence(kStart + std::chrono::seconds(7)), std::chrono::seconds(2));
  line.forgive(std::chrono::seconds(5), kStart + std::chrono::seconds(7));
  EXPECT_EQ(line.silence(kStart + std::chrono::seconds(7)), Duration(0));
}

TEST(ControlLineDeathTest, WhatItIsNotAskedForItDoesNotDo) {
  PeerLink line;
  EXPECT_DEATH((void)line.may_dial(true, kStart), "nobody asks");
  EXPECT_DEATH(line.dialed(kStart), "nobody asks");
  line.want(kStart);
  EXPECT_DEATH((void)line.silence(kStart), "not there");
  EXPECT_DEATH((void)ControlPeer().exiting_for(kStart), "did not say");
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
  for (const uint64_t id : {2, 3}) processes_[id].line(LinkKind::kTcp).failed(EACCES, "no");
  processes_.forget_failures();
  for (const uint64_t id : {2, 3}) EXPECT_EQ(processes_[id].line(LinkKind::kTcp).rejection(), "");
}

// A child that ends when its pipe does.
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
  processes_.watch_exit(2, child.pid());  // on another connection: watched already
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

TEST_F(ProcessesTest, WhatCannotBeSeenIsNotWatched) {
  processes_.watch_exit(2, 0);  // in another pid namespace
  EXPECT_FALSE(processes_[2].pidfd);
  EXPECT_TRUE(epoll_.value().wait(Duration(0)).empty());
}

}  // namespace
}  // namespace ringdist::test
