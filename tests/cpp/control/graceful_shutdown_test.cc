// Graceful shutdown of a control plane, with fake connections and a clock that the test moves.
#include "control/graceful_shutdown.h"

#include <gtest/gtest.h>

#include "control/fake_connection_sender.h"
#include "control/fake_connection_view.h"
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
    shutdown_.begin(process_ends, std::move(answer), kStart);
  }
  bool said() const { return said_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

  Result<Epoll> epoll_ = Epoll::create();
  ControlPeerTable processes_{epoll_.value()};
  FakeConnectionSender sender_;
  GracefulShutdown shutdown_{kMe, processes_, sender_};
  std::future<Error> said_;
};

TEST_F(GracefulShutdownTest, ItsConnectionsAreClosedByTheOthers) {
  ControlConnection& open = sender_.add(2);
  ControlConnection& greeting = sender_.add(3, LinkKind::kLocal, Connection::kGreeting);
  EXPECT_EQ(shutdown_.state(), State::kHere);
  begin(/*process_ends=*/false);
  EXPECT_EQ(shutdown_.state(), State::kSending);
  EXPECT_FALSE(sender_.listening);
  EXPECT_TRUE(sender_.said.empty());
  shutdown_.advance(kStart);
  EXPECT_EQ(shutdown_.state(), State::kWaiting);
  ASSERT_EQ(sender_.said.size(), 1u);
  EXPECT_EQ(PeerDeparture::decode(sender_.said[0].body)->context_id, kMe);
  EXPECT_EQ(sender_.take(FrameType::kLeft), Ids{2});
  EXPECT_TRUE(greeting.closed()) << "nothing can be said there";
  shutdown_.advance(kStart + Milliseconds(5));
  EXPECT_TRUE(sender_.said.empty()) << "it is said once";
  EXPECT_TRUE(sender_.ended.contains(2));
  EXPECT_TRUE(open.open() && !said());
  open.state = Connection::kClosed;
  shutdown_.advance(kStart + Milliseconds(10));
  EXPECT_EQ(shutdown_.state(), State::kGone);
  EXPECT_FALSE(said_.get());
}

// The dialed link leads to another host, which may get no other report of this departure.
TEST_F(GracefulShutdownTest, ItWaitsForLinksThatItHasDialed) {
  ControlConnection& dialed = sender_.add(2, LinkKind::kTcp, Connection::kConnecting);
  ControlConnection& never = sender_.add(3, LinkKind::kTcp, Connection::kGreeting);
  begin(/*process_ends=*/true);
  shutdown_.advance(kStart);
  dialed.state = Connection::kOpen;
  shutdown_.advance(kOver - Milliseconds(1));
  EXPECT_EQ(shutdown_.state(), State::kSending);
  shutdown_.advance(kOver);
  EXPECT_EQ(sender_.take(FrameType::kExits), Ids{2});
  EXPECT_TRUE(never.closed() && !said()) << "there is time to hear it";
}

TEST_F(GracefulShutdownTest, WhoDoesNotCloseIsNotAwaitedForLong) {
  ControlConnection& open = sender_.add(2);
  begin(/*process_ends=*/false);
  shutdown_.advance(kStart);
  shutdown_.advance(kOver - Milliseconds(1));
  EXPECT_FALSE(said());
  shutdown_.advance(kOver);
  EXPECT_TRUE(said() && open.closed());
}

TEST_F(GracefulShutdownTest, WithNobodyThereItIsSaidAtOnce) {
  begin(/*process_ends=*/false);
  shutdown_.advance(kStart);
  EXPECT_TRUE(said());
}

// Peers answer or exit as well. The connections stay open, so their end shows that the process has
// ended.
TEST_F(GracefulShutdownTest, OfAProcessThatEndsTheConnectionsStay) {
  ControlConnection& answers = sender_.add(2);
  ControlConnection& exits = sender_.add(3);
  processes_[3].exits(kStart);
  begin(/*process_ends=*/true);
  shutdown_.advance(kStart);
  EXPECT_EQ(sender_.take(FrameType::kExits), (Ids{2, 3}));
  EXPECT_FALSE(said());
  answers.exit_seen = true;
  shutdown_.advance(kStart + Milliseconds(5));
  EXPECT_TRUE(said());
  EXPECT_TRUE(sender_.ended.empty());
  shutdown_.end();
  EXPECT_TRUE(answers.open() && exits.open());
}

// The process at the other end watches this one, though they have no common group.
TEST_F(GracefulShutdownTest, ItIsReportedOnHeldConnections) {
  ControlConnection& held = sender_.add(2, LinkKind::kLocal, Connection::kHeld);
  ControlConnection& dialed = sender_.add(3, LinkKind::kLocal, Connection::kHeld);
  held.dialed = false;
  begin(/*process_ends=*/true);
  shutdown_.advance(kStart);
  EXPECT_EQ(sender_.take(FrameType::kExits), Ids{2});
  EXPECT_TRUE(held.closed() && dialed.closed() && said());
}

TEST_F(GracefulShutdownTest, AnEndCutsItShort) {
  ControlConnection& open = sender_.add(2);
  begin(/*process_ends=*/false);
  shutdown_.end();
  EXPECT_TRUE(said() && open.closed());
  shutdown_.end();
  EXPECT_EQ(shutdown_.state(), State::kGone);
}

TEST_F(GracefulShutdownTest, WhoEndsWithoutAWordClosesAll) {
  ControlConnection& open = sender_.add(2);
  shutdown_.end();
  EXPECT_TRUE(open.closed());
  EXPECT_FALSE(sender_.listening);
  EXPECT_EQ(shutdown_.state(), State::kGone);
}

}  // namespace
}  // namespace ringdist::test
