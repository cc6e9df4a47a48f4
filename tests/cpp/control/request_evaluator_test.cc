// Answers to requests that wait for the control plane, evaluated without I/O or time.
#include <gtest/gtest.h>

#include <algorithm>

#include "control/control_requests.h"
#include "control/fake_connection_view.h"
#include "os/epoll.h"

namespace ringdist::test {
namespace {

using Link = FakeConnectionView::Link;

class RequestEvaluatorTest : public testing::Test {
 protected:
  Result<Epoll> epoll_ = Epoll::create();
  ControlPeerTable processes_{epoll_.value()};
  ControlGroupTable groups_;
  ControlHistory history_;
  FormationBarrier formation_barrier_;
  FakeConnectionView connections_view_;
  RequestEvaluator evaluator_{kMe, processes_, history_, formation_barrier_, connections_view_};
};

TEST_F(RequestEvaluatorTest, AProofIsAConnectionThatWasAnswered) {
  const auto ask = [this](bool expired) { return evaluator_.proof(2, "it", expired); };
  EXPECT_FALSE(ask(false).has_value()) << "no answer yet";
  connections_view_.links[{2, LinkKind::kLocal}] = Link::kTried;
  EXPECT_FALSE(ask(false).has_value());
  ASSERT_TRUE(ask(true).has_value());
  EXPECT_EQ(ask(true)->kind(), ErrorKind::kTimeout);
  connections_view_.links[{2, LinkKind::kLocal}] = Link::kHeld;
  ASSERT_TRUE(ask(false).has_value());
  EXPECT_FALSE(*ask(false));
}

TEST_F(RequestEvaluatorTest, AProofFailsWhereNobodyListensOrItIsRefused) {
  PeerLink& link = processes_[2].link(LinkKind::kLocal);
  link.failed(ECONNREFUSED, "refused");
  EXPECT_EQ(evaluator_.proof(2, "it", false)->message(), "it does not share this host: refused");
  link.failed(EACCES, "another user");
  EXPECT_EQ(evaluator_.proof(2, "it", false)->message(), "it refused: another user");
  history_.record_left(3);
  EXPECT_EQ(evaluator_.proof(3, "it", false)->message(), "it is gone");
}

TEST_F(RequestEvaluatorTest, AGroupIsLinkedWhenAllItsLinksAreUp) {
  const ControlGroup& group = groups_.join(kNonce, 1, 0, processes_on({0, 0, 1}));
  const auto ask = [&](bool expired) { return evaluator_.links(kNonce, group, expired); };
  EXPECT_FALSE(ask(false).has_value());
  connections_view_.links[{2, LinkKind::kLocal}] = Link::kOpen;
  EXPECT_FALSE(ask(false).has_value());
  ASSERT_TRUE(ask(true).has_value());
  EXPECT_EQ(ask(true)->ranks(), std::vector{2});
  EXPECT_NE(ask(true)->message().find("rank 2 (pid 103 on host h1) cannot be reached on its "
                                      "control socket tcp3: it did not connect in time"),
            std::string::npos)
      << ask(true)->message();
  connections_view_.links[{3, LinkKind::kTcp}] = Link::kHeld;
  ASSERT_TRUE(ask(false).has_value());
  EXPECT_FALSE(*ask(false));
}

TEST_F(RequestEvaluatorTest, AMemberThatDiedBeforeItHadConnectedFailsIt) {
  const ControlGroup& group = groups_.join(kNonce, 1, 0, processes_on({0, 0}));
  history_.record_lost(2, "killed");
  const auto answer = evaluator_.links(kNonce, group, false);
  ASSERT_TRUE(answer.has_value());
  EXPECT_NE(answer->message().find("rank 1 (pid 102 on host h0) is lost: "), std::string::npos);
  (void)formation_barrier_.learn(kNonce, {2}, [](uint64_t) { return true; });
  EXPECT_FALSE(*evaluator_.links(kNonce, group, false)) << "the engine tells of it";
}

// Members that declared this process lost do not link to it, so no other report would reach it.
TEST_F(RequestEvaluatorTest, OneThatOthersGaveUpFormsNoGroup) {
  const ControlGroup& group = groups_.join(kNonce, kMe, 0, processes_on({0, 0}));
  (void)formation_barrier_.learn(kNonce, {kMe}, [](uint64_t) { return true; });
  history_.record_lost(kMe, "it was silent");
  const auto answer = evaluator_.links(kNonce, group, false);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->ranks(), std::vector{0});
}

TEST_F(RequestEvaluatorTest, AGroupIsFormedWhenAllHaveArrivedOrLeft) {
  const ControlGroup& group = groups_.join(kNonce, 1, 0, processes_on({0, 0, 0}));
  const auto ours = [](uint64_t) { return true; };
  EXPECT_EQ(formation_barrier_.learn(kNonce, {1, 2}, ours), (std::vector<uint64_t>{1, 2}));
  EXPECT_TRUE(formation_barrier_.learn(kNonce, {2}, ours).empty()) << "no news";
  EXPECT_FALSE(evaluator_.formed(kNonce, group, false).has_value());
  EXPECT_EQ(evaluator_.formed(kNonce, group, true)->ranks(), std::vector{2});
  history_.record_left(3);
  EXPECT_FALSE(*evaluator_.formed(kNonce, group, false));
}

TEST(FormationBarrier, ForgetStrangersGroupsFirst) {
  FormationBarrier arrivals;
  const auto ours = [](uint64_t nonce) { return nonce == 1; };
  for (uint64_t nonce = 1; nonce <= 5000; ++nonce) (void)arrivals.learn(nonce, {9}, ours);
  EXPECT_TRUE(arrivals.has(1, 9));
  EXPECT_FALSE(arrivals.has(2, 9));
  EXPECT_TRUE(arrivals.has(5000, 9));
  arrivals.forget(5000);
  EXPECT_TRUE(arrivals.of(5000).empty());
}

TEST(ControlGroupTable, StayUntilAllHaveHeardThatTheyWereLeft) {
  using State = ControlGroup::State;
  ControlGroupTable groups;
  const auto members = processes_on({0, 0});
  EXPECT_EQ(groups.join(kNonce, 1, 0, members).state(), State::kConnecting);
  groups.find(kNonce)->connect(kStart);
  EXPECT_FALSE(groups.leave(kNonce, 5, kStart)) << "no rank of ours";
  EXPECT_TRUE(groups.leave(kNonce, 0, kStart));
  EXPECT_EQ(groups.find(kNonce)->state(), State::kLeft);
  const auto nobody = [](uint64_t, const ControlGroup&) { return false; };
  EXPECT_TRUE(groups.forget_left(nobody, kStart + std::chrono::seconds(59)).empty());
  EXPECT_EQ(groups.join(kNonce, 1, 0, members).state(), State::kConnected) << "it comes back";
  EXPECT_TRUE(groups.leave(kNonce, 0, kStart));
  EXPECT_EQ(groups.forget_left(nobody, kStart + std::chrono::minutes(1)),
            std::vector<uint64_t>{kNonce});
  EXPECT_EQ(groups.member(2), nullptr);
}

TEST(ControlGroupTable, NameALiveGroupWhereTheyDial) {
  ControlGroupTable groups;
  (void)groups.join(5, 1, 0, processes_on({0, 1}));
  (void)groups.join(6, 1, 0, processes_on({0, 1}));
  (void)groups.leave(5, 0, kStart);
  EXPECT_EQ(groups.address_of(2, LinkKind::kTcp).nonce, 6u);
  EXPECT_EQ(groups.address_of(2, LinkKind::kTcp).address, "tcp2");
  EXPECT_EQ(groups.address_of(2, LinkKind::kTcp).source, "tcp1") << "this process'";
  EXPECT_EQ(groups.address_of(2, LinkKind::kLocal).nonce, 6u);
  EXPECT_EQ(groups.address_of(2, LinkKind::kLocal).address, "@2");
  EXPECT_EQ(groups.address_of(9, LinkKind::kLocal).address, "");
}

}  // namespace
}  // namespace ringdist::test
