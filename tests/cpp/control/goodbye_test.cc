// How a process leaves: with made-up connections, and a clock that the test moves.
#include "control/goodbye.h"

#include <gtest/gtest.h>

#include "control/fake_reach.h"
#include "control/fake_voice.h"
#include "os/epoll.h"

namespace ringdist::test {
namespace {

using State = GracefulShutdown::State;
using Connection = ControlConnection::State;
using Ids = std::vector<uint64_t>;
const TimePoint kOver = kStart + Milliseconds(200);

class GracefulShutdownTest : public testing::Test {
 protected:
  void begin(bool process_ends) {
    auto answer = std::make_shared<std::promise<Error>>();
    said_ = answer->get_future();
    goodbye_.begin(process_ends, std::move(answer), kStart);
  }
  bool said() const { return said_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

  Result<Epoll> epoll_ = Epoll::create();
  ControlPeerTable processes_{epoll_.value()};
  FakeConnectionSender voice_;
  GracefulShutdown goodbye_{kMe, processes_, voice_};
  std::future<Error> said_;
};

TEST_F(GracefulShutdownTest, ItsConnectionsAreClosedByTheOthers) {
  ControlConnection& open = voice_.add(2);
  ControlConnection& greeting = voice_.add(3, LinkKind::kLocal, Connection::kGreeting);
  EXPECT_EQ(goodbye_.state(), State::kHere);
  begin(/*process_ends=*/false);
  EXPECT_EQ(goodbye_.state(), State::kSpeaking);
  EXPECT_FALSE(voice_.listening);
  EXPECT_TRUE(voice_.said.empty());
  goodbye_.say(kStart);
  EXPECT_EQ(goodbye_.state(), State::kWaiting);
  ASSERT_EQ(voice_.said.size(), 1u);
  EXPECT_EQ(PeerDeparture::decode(voice_.said[0].body)->context_id, kMe);
  EXPECT_EQ(voice_.take(FrameType::kLeft), Ids{2});
  EXPECT_TRUE(greeting.closed()) << "nothing can be said there";
  goodbye_.say(kStart + Milliseconds(5));
  EXPECT_TRUE(voice_.said.empty()) << "it is said once";
  EXPECT_TRUE(voice_.ended.contains(2));
  EXPECT_TRUE(open.open() && !said());
  open.state = Connection::kClosed;
  goodbye_.say(kStart + Milliseconds(10));
  EXPECT_EQ(goodbye_.state(), State::kGone);
  EXPECT_FALSE(said_.get());
}

// To another host, by one whose host-mates end.
TEST_F(GracefulShutdownTest, ItWaitsForLinksThatItHasDialed) {
  ControlConnection& dialed = voice_.add(2, LinkKind::kTcp, Connection::kConnecting);
  ControlConnection& never = voice_.add(3, LinkKind::kTcp, Connection::kGreeting);
  begin(/*process_ends=*/true);
  goodbye_.say(kStart);
  dialed.state = Connection::kOpen;
  goodbye_.say(kOver - Milliseconds(1));
  EXPECT_EQ(goodbye_.state(), State::kSpeaking);
  goodbye_.say(kOver);
  EXPECT_EQ(voice_.take(FrameType::kExits), Ids{2});
  EXPECT_TRUE(never.closed() && !said()) << "there is time to hear it";
}

TEST_F(GracefulShutdownTest, WhoDoesNotCloseIsNotAwaitedForLong) {
  ControlConnection& open = voice_.add(2);
  begin(/*process_ends=*/false);
  goodbye_.say(kStart);
  goodbye_.say(kOver - Milliseconds(1));
  EXPECT_FALSE(said());
  goodbye_.say(kOver);
  EXPECT_TRUE(said() && open.closed());
}

TEST_F(GracefulShutdownTest, WithNobodyThereItIsSaidAtOnce) {
  begin(/*process_ends=*/false);
  goodbye_.say(kStart);
  EXPECT_TRUE(said());
}

// They answer, or exit as well; the connections tell them when it has ended.
TEST_F(GracefulShutdownTest, OfAProcessThatEndsTheConnectionsStay) {
  ControlConnection& answers = voice_.add(2);
  ControlConnection& exits = voice_.add(3);
  processes_[3].exits(kStart);
  begin(/*process_ends=*/true);
  goodbye_.say(kStart);
  EXPECT_EQ(voice_.take(FrameType::kExits), (Ids{2, 3}));
  EXPECT_FALSE(said());
  answers.exit_seen = true;
  goodbye_.say(kStart + Milliseconds(5));
  EXPECT_TRUE(said());
  EXPECT_TRUE(voice_.ended.empty());
  goodbye_.end();
  EXPECT_TRUE(answers.open() && exits.open());
}

TEST_F(GracefulShutdownTest, WhatCouldNotBeSaidIsSaidNextTime) {
  (void)voice_.add(2);
  voice_.no_memory_for.insert(2);
  begin(/*process_ends=*/false);
  EXPECT_THROW(goodbye_.say(kStart), std::bad_alloc);
  EXPECT_EQ(goodbye_.state(), State::kSpeaking);
  voice_.no_memory_for.clear();
  goodbye_.say(kStart + Milliseconds(5));
  EXPECT_EQ(voice_.take(FrameType::kLeft), Ids{2});
}

TEST_F(GracefulShutdownTest, AnEndCutsItShort) {
  ControlConnection& open = voice_.add(2);
  begin(/*process_ends=*/false);
  goodbye_.end();
  EXPECT_TRUE(said() && open.closed());
  goodbye_.end();
  EXPECT_EQ(goodbye_.state(), State::kGone);
}

TEST_F(GracefulShutdownTest, WhoEndsWithoutAWordClosesAll) {
  ControlConnection& open = voice_.add(2);
  goodbye_.end();
  EXPECT_TRUE(open.closed());
  EXPECT_FALSE(voice_.listening);
  EXPECT_EQ(goodbye_.state(), State::kGone);
}

}  // namespace
}  // namespace ringdist::test
