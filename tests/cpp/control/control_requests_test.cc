// Pending requests to the control plane: each gets exactly one answer. No I/O, no time.
#include "control/control_requests.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "control/fake_connection_view.h"
#include "os/epoll.h"

namespace ringdist::test {
namespace {

using Link = FakeConnectionView::Link;
using Kind = ControlRequest::Kind;
const TimePoint kLate = kStart + std::chrono::seconds(5);

class RequestsTest : public testing::Test, protected ControlRequests::Delegate {
 protected:
  // Connects rank 0 (process 1) to a group with rank 1 (process 2) on the same host.
  std::future<Error> connect() {
    ControlRequest request = make(Kind::kGroup, kNonce);
    auto answer = request.answer->get_future();
    requests_.connect(request, [this] { (void)groups_.join(kNonce, 1, 0, processes_on({0, 0})); });
    return answer;
  }
  std::future<Error> prove(uint64_t id) {
    ControlRequest request = make(Kind::kProof, id);
    auto answer = request.answer->get_future();
    requests_.prove(request, "@" + std::to_string(id));
    return answer;
  }
  static bool answered(const std::future<Error>& answer) {
    return answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  void arrive(uint64_t process) {
    (void)formation_barrier_.learn(kNonce, {process}, [](uint64_t) { return true; });
  }

  ControlRequest make(Kind kind, uint64_t id) {
    return {kind, id, &deadline_, std::make_shared<std::promise<Error>>()};
  }

  // The following function implements the delegate of the requests.
  void on_linked(uint64_t nonce) override {
    linked_.push_back(nonce);
    if (cancels_) deadline_.cancelled = true;
    arrive(1);
  }

  CancellableDeadline deadline_{kLate};
  Result<Epoll> epoll_ = Epoll::create();
  ControlPeerTable processes_{epoll_.value()};
  ControlGroupTable groups_;
  ControlHistory history_;
  FormationBarrier formation_barrier_;
  FakeConnectionView connections_view_;
  RequestEvaluator evaluator_{kMe, processes_, history_, formation_barrier_, connections_view_};
  ControlRequests requests_{groups_, processes_, evaluator_, *this};
  std::vector<uint64_t> linked_;
  bool cancels_ = false;
};

TEST_F(RequestsTest, AGroupIsLinkedAndThenFormed) {
  auto answer = connect();
  requests_.answer_ready(kStart);
  EXPECT_FALSE(answered(answer));
  EXPECT_TRUE(linked_.empty());
  connections_view_.links[{2, LinkKind::kLocal}] = Link::kOpen;
  requests_.answer_ready(kStart);
  requests_.answer_ready(kStart);
  EXPECT_EQ(linked_, std::vector<uint64_t>{kNonce}) << "told once";
  EXPECT_EQ(groups_.find(kNonce)->state(), ControlGroup::State::kConnected);
  EXPECT_FALSE(answered(answer)) << "the other has not found us yet";
  arrive(2);
  requests_.answer_ready(kStart);
  ASSERT_TRUE(answered(answer));
  EXPECT_FALSE(answer.get());
  EXPECT_TRUE(requests_.empty());
  requests_.answer_ready(kLate);
  requests_.stop();
}

TEST_F(RequestsTest, ARequestTimesOut) {
  auto group = connect();
  auto proof = prove(3);
  EXPECT_EQ(requests_.proofs(), std::vector<uint64_t>{3});
  requests_.answer_ready(kLate - Milliseconds(1));
  EXPECT_FALSE(answered(group) || answered(proof));
  requests_.answer_ready(kLate);
  EXPECT_EQ(group.get().kind(), ErrorKind::kTimeout);
  const Error error = proof.get();
  EXPECT_EQ(error.kind(), ErrorKind::kTimeout);
  EXPECT_EQ(error.message().find("context 0000000000000003 did not answer"), 0u) << error.message();
  EXPECT_TRUE(requests_.empty());
}

TEST_F(RequestsTest, OneIsAnsweredAndTheOthersWaitOn) {
  auto first = prove(2);
  auto second = prove(3);
  auto third = prove(4);
  connections_view_.links[{3, LinkKind::kLocal}] = Link::kOpen;
  requests_.answer_ready(kStart);
  EXPECT_FALSE(answered(first) || answered(third));
  EXPECT_FALSE(second.get());
  EXPECT_EQ(requests_.proofs(), (std::vector<uint64_t>{2, 4}));
}

// Refusals from before do not count for a new proof. The proof is kept until a group has used it,
// or until it has failed.
TEST_F(RequestsTest, AProofBeginsAnew) {
  processes_[2].link(LinkKind::kLocal).failed(ECONNREFUSED, "refused");
  processes_[2].link(LinkKind::kLocal).failed(EACCES, "another user");
  auto answer = prove(2);
  EXPECT_TRUE(processes_[2].proven);
  EXPECT_EQ(processes_[2].unix_name, "@2");
  requests_.answer_ready(kStart);
  EXPECT_FALSE(answered(answer));
  processes_[2].link(LinkKind::kLocal).failed(ECONNREFUSED, "refused");
  requests_.answer_ready(kStart);
  EXPECT_TRUE(answer.get());
  EXPECT_FALSE(processes_[2].proven);
  auto again = prove(2);
  connections_view_.links[{2, LinkKind::kLocal}] = Link::kOpen;
  requests_.answer_ready(kStart);
  EXPECT_FALSE(again.get());
  EXPECT_TRUE(processes_[2].proven);
}

TEST_F(RequestsTest, OfAGroupThatWasLeftOrCalledOffNothingComes) {
  auto left = connect();
  (void)groups_.leave(kNonce, 0, kStart);
  requests_.answer_ready(kStart);
  EXPECT_EQ(left.get().kind(), ErrorKind::kAborted);
  auto cancelled = connect();
  deadline_.cancelled = true;
  requests_.answer_ready(kStart);
  EXPECT_EQ(cancelled.get().kind(), ErrorKind::kAborted);
}

// Another thread cancels the request while the control thread examines it.
TEST_F(RequestsTest, WhatIsCalledOffNeverTimesOut) {
  auto answer = connect();
  connections_view_.links[{2, LinkKind::kLocal}] = Link::kOpen;
  cancels_ = true;
  requests_.answer_ready(kStart);
  EXPECT_FALSE(answered(answer) && answer.get().kind() == ErrorKind::kTimeout);
  requests_.answer_ready(kStart);
  EXPECT_EQ(answer.get().kind(), ErrorKind::kAborted);
}

TEST_F(RequestsTest, AtTheEndAllAreRefused) {
  auto waiting = connect();
  requests_.stop();
  EXPECT_EQ(waiting.get().kind(), ErrorKind::kAborted);
  auto late = connect();
  EXPECT_EQ(late.get().kind(), ErrorKind::kAborted);
  EXPECT_EQ(prove(2).get().kind(), ErrorKind::kAborted);
  EXPECT_EQ(processes_.find(2), nullptr) << "nothing was begun";
  requests_.answer_ready(kStart);
  requests_.stop();
}

}  // namespace
}  // namespace ringdist::test
