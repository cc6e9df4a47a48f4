// A rank's slot of a group that forms: ops that wait for the members, and all ways in which this
// can end.
#include "engine/group/group_slot.h"

#include <gtest/gtest.h>

#include "engine/group/members.h"

namespace ringdist::test {
namespace {

using State = GroupSlot::State;

class GroupSlotTest : public testing::Test {
 protected:
  GroupSlotTest() {
    GroupConfig config = Member::config();
    config.on_failed = [this](const Error& cause) { failures_.push_back(cause); };
    config.warn_after = std::chrono::hours(1);
    slot_ = std::make_unique<GroupSlot>(delegate_, 0, 2, std::move(config));
  }

  std::shared_ptr<Op> call() {
    auto op =
        planned_op(planner_, allreduce_request(data_, DType::kFloat32, ReduceOp::kSum), ++calls_);
    op->started = delegate_.state.now;
    op->deadline = op->started + std::chrono::seconds(60);
    slot_->enqueue(op);
    return op;
  }
  void pass(Duration time) {
    delegate_.state.now += time;
    slot_->tick();
  }
  void form() { slot_->form(Member::membership(0, 2, wire_)); }

  std::vector<float> data_ = std::vector<float>(4, 1.0f);
  FakeGroupDelegate delegate_;
  FakeTransport wire_{delegate_.on_sent()};
  Planner planner_{{0, 2, "", false, kGroupSegment}};
  uint64_t calls_ = 0;
  std::vector<Error> failures_;
  std::unique_ptr<GroupSlot> slot_;
};

using GroupSlotDeathTest = GroupSlotTest;

Notice aborts(uint64_t op) {
  return abort_notice(kNonce, 0, 1, op, Error(ErrorKind::kMismatch, "they differ"));
}

TEST_F(GroupSlotTest, OpsWaitForTheMembersAndBeginInOrder) {
  const auto first = call();
  const auto second = call();
  EXPECT_EQ(slot_->state(), State::kBootstrapping);
  EXPECT_FALSE(slot_->idle());
  EXPECT_EQ(slot_->group(), nullptr);
  EXPECT_NE(slot_->dump().find("waiting for its members, last op #2"), std::string::npos)
      << slot_->dump();
  form();
  EXPECT_EQ(slot_->state(), State::kFormed);
  EXPECT_EQ(slot_->nonce(), kNonce);
  delegate_.work(*slot_->group());
  const auto& sent = wire_.sent[Member::context(1)];
  ASSERT_GE(sent.size(), 2u);
  MessageHeader header{};
  ASSERT_TRUE(parse_header(sent.front().header, header));
  EXPECT_EQ(header.op, 1u);
  EXPECT_FALSE(first->finished() || second->finished());
}

TEST_F(GroupSlotTest, SaysWhatItsOpsWaitFor) {
  EXPECT_EQ(slot_->status().text, "looks for its members");
  (void)call();
  EXPECT_EQ(slot_->status().text, "all_reduce #1 (float32, 4 elements, SUM) runs since 0.0 s");
  pass(std::chrono::seconds(3));
  EXPECT_EQ(slot_->status().text,
            "all_reduce #1 (float32, 4 elements, SUM) has been waiting 3.0 s for the group's "
            "members to be found");
}

TEST_F(GroupSlotTest, ADeadlineEndsItAndTheOthersHearOfItOnceTheyCan) {
  const auto op = call();
  pass(std::chrono::seconds(61));
  ASSERT_TRUE(op->finished());
  EXPECT_EQ(op->error().kind(), ErrorKind::kTimeout);
  EXPECT_NE(op->error().message().find("Timed out waiting 61000 ms for op #1 on rank 0: the "
                                       "group's members have not all been found"),
            std::string::npos)
      << op->error().what();
  EXPECT_EQ(slot_->state(), State::kFailedUnannounced);
  EXPECT_TRUE(delegate_.flooded.empty()) << "nobody could be told";
  slot_->set_nonce(kNonce);
  EXPECT_EQ(slot_->state(), State::kFailed);
  ASSERT_EQ(delegate_.count(NoticeKind::kAbort), 1) << "now they can";
  EXPECT_EQ(delegate_.flooded[0].op, 1u);
  EXPECT_EQ(delegate_.flooded[0].nonce, kNonce);
  pass(std::chrono::seconds(61));
  EXPECT_EQ(delegate_.count(NoticeKind::kAbort), 1);
  EXPECT_EQ(failures_.size(), 1u);
}

TEST_F(GroupSlotTest, OpsAfterItsFailureEndWithTheCause) {
  slot_->fail(Error(ErrorKind::kAborted, "enough"), /*tell_others=*/false);
  slot_->fail(Error(ErrorKind::kSystem, "later"), /*tell_others=*/true);
  const auto op = call();
  ASSERT_TRUE(op->finished());
  EXPECT_EQ(op->error().message(),
            "ringdist: all_reduce #1 (float32, 4 elements, SUM) on rank 0 of group 'alone' failed: "
            "enough; its tensors are unchanged");
  EXPECT_TRUE(slot_->idle());
  slot_->set_nonce(kNonce);
  EXPECT_TRUE(delegate_.flooded.empty()) << "whoever failed it has told them";
  ASSERT_EQ(failures_.size(), 1u);
  EXPECT_EQ(failures_[0].message(), "enough");
}

TEST_F(GroupSlotTest, AnothersFailureIsOurs) {
  const auto op = call();
  slot_->set_nonce(kNonce);
  slot_->on_notice(leave_notice(kNonce, 1, 0));
  slot_->on_notice(aborts(/*op=*/2));
  EXPECT_FALSE(op->finished()) << "the group hears of these when it is formed";
  slot_->on_notice(aborts(/*op=*/1));
  ASSERT_TRUE(op->finished());
  EXPECT_EQ(op->error().kind(), ErrorKind::kMismatch);
  EXPECT_NE(op->error().message().find("rank 1 ended the group at op #1: they differ"),
            std::string::npos);
  EXPECT_TRUE(delegate_.flooded.empty());
}

// If a notice cannot be sent, for example without memory, the lane retries it.
TEST_F(GroupSlotTest, WhoCouldNotBeToldIsToldLater) {
  const auto op = call();
  slot_->set_nonce(kNonce);
  EXPECT_EQ(slot_->state(), State::kNamed);
  delegate_.words = 0;
  slot_->fail(Error(ErrorKind::kSystem, "enough"), /*tell_others=*/true);
  EXPECT_TRUE(op->finished()) << "that need not wait";
  EXPECT_EQ(slot_->state(), State::kFailed);
  EXPECT_FALSE(slot_->idle());
  EXPECT_TRUE(failures_.empty());
  delegate_.words = 1;
  pass(std::chrono::milliseconds(50));
  EXPECT_EQ(delegate_.count(NoticeKind::kAbort), 1);
  EXPECT_EQ(failures_.size(), 1u);
  EXPECT_TRUE(slot_->idle());
}

TEST_F(GroupSlotTest, LeavesByNameIfItHasOne) {
  slot_->announce_leave(NoticeKind::kLeave);
  EXPECT_TRUE(delegate_.flooded.empty());
  slot_->set_nonce(kNonce);
  slot_->announce_leave(NoticeKind::kExit);
  ASSERT_EQ(delegate_.count(NoticeKind::kExit), 1);
  EXPECT_EQ(delegate_.flooded[0].op, 0u) << "it took part in none";
}

TEST_F(GroupSlotTest, OnceFormedItIsTheGroups) {
  form();
  const auto op = call();
  slot_->on_notice(leave_notice(kNonce, 1, 0));
  ASSERT_TRUE(op->finished());
  EXPECT_NE(op->error().message().find("has left the group"), std::string::npos);
  EXPECT_TRUE(slot_->failure());
  EXPECT_EQ(slot_->status().rank, GroupStatus::kFailed);
  EXPECT_EQ(failures_.size(), 1u);
}

// The member had been reached before the group was formed.
TEST_F(GroupSlotTest, AConnectionMayBreakBeforeItIsFormed) {
  wire_.reaches_all = false;
  form();
  const auto op = call();
  pass(std::chrono::milliseconds(600));
  ASSERT_TRUE(op->finished());
  EXPECT_NE(op->error().message().find("the connection broke before the first op"),
            std::string::npos);
}

TEST_F(GroupSlotDeathTest, FormsOnce) {
  form();
  EXPECT_DEATH(form(), "formed twice");
}

}  // namespace
}  // namespace ringdist::test
