// ProgressLock, handed over in every order. One thread plays all callers, because none of these
// calls blocks.
#include "engine/progress/progress_lock.h"

#include <gtest/gtest.h>

#include <thread>

namespace ringdist {
namespace {

const TimePoint kNoWait = TimePoint::min();

class ProgressLockTest : public testing::Test {
 protected:
  Op a_{OpRequest{}}, b_{OpRequest{}};
  ProgressLock::Waiter first_{a_}, second_{b_};
  ProgressLock token_;
};

TEST_F(ProgressLockTest, OneHasIt) {
  EXPECT_FALSE(token_.held_by_this_thread());
  EXPECT_TRUE(token_.take());
  EXPECT_FALSE(token_.take());
  EXPECT_TRUE(token_.held_by_this_thread());
  bool elsewhere = true;
  std::thread([&] { elsewhere = token_.held_by_this_thread(); }).join();
  EXPECT_FALSE(elsewhere);
  EXPECT_FALSE(token_.release(nullptr)) << "nobody waits";
  EXPECT_FALSE(token_.held_by_this_thread());
  EXPECT_TRUE(token_.take());
}

TEST_F(ProgressLockTest, GoesToTheFirstWhoWaits) {
  ASSERT_TRUE(token_.take());
  token_.enlist(first_);
  token_.enlist(second_);
  EXPECT_TRUE(token_.anybody_waits());
  EXPECT_TRUE(token_.release(nullptr));
  EXPECT_FALSE(token_.delist(second_)) << "it was offered to the first";
  token_.await(first_, TimePoint::max());  // returns, because it has the offer
  token_.publish_failure(first_);
  EXPECT_TRUE(token_.take());
  EXPECT_FALSE(token_.delist(first_));
  EXPECT_FALSE(token_.anybody_waits());
}

TEST_F(ProgressLockTest, NotBackToWhoLeavesIt) {
  token_.enlist(first_);
  ASSERT_TRUE(token_.take());
  EXPECT_FALSE(token_.release(&first_));
  token_.enlist(second_);
  ASSERT_TRUE(token_.take());
  EXPECT_TRUE(token_.release(&first_));
  EXPECT_TRUE(token_.delist(second_));
  EXPECT_FALSE(token_.delist(first_));
}

TEST_F(ProgressLockTest, NotToWhoseOpHasFinished) {
  token_.enlist(first_);
  token_.enlist(second_);
  (void)a_.finish({});
  token_.await(first_, TimePoint::max());  // returns, because its op has finished
  ASSERT_TRUE(token_.take());
  EXPECT_TRUE(token_.release(nullptr));
  EXPECT_FALSE(token_.delist(first_));
  EXPECT_TRUE(token_.delist(second_));
}

// The wait of the first caller times out just when it gets the offer, so the next caller must get
// it.
TEST_F(ProgressLockTest, AnOfferThatIsNotTakenIsPassedOn) {
  token_.enlist(first_);
  token_.enlist(second_);
  ASSERT_TRUE(token_.take());
  EXPECT_TRUE(token_.release(nullptr));
  ASSERT_TRUE(token_.delist(first_)) << "says that it was offered";
  ASSERT_TRUE(token_.take());
  EXPECT_TRUE(token_.release(&first_));
  EXPECT_TRUE(token_.delist(second_));
}

// Another caller was faster. The offer is void, and its receiver waits for the next one.
TEST_F(ProgressLockTest, AnOfferMayBeOvertaken) {
  token_.enlist(first_);
  ASSERT_TRUE(token_.take());
  EXPECT_TRUE(token_.release(nullptr));
  ASSERT_TRUE(token_.take()) << "another caller";
  token_.publish_failure(first_);
  EXPECT_FALSE(token_.take());
  token_.await(first_, kNoWait);  // no offer, so it would sleep
  EXPECT_TRUE(token_.release(nullptr));
  EXPECT_TRUE(token_.delist(first_));
}

// An offer between the attempt and the sleep is not lost.
TEST_F(ProgressLockTest, AnOfferAfterAFailedAttemptStays) {
  ASSERT_TRUE(token_.take());
  token_.enlist(first_);
  token_.publish_failure(first_);
  EXPECT_FALSE(token_.take());
  EXPECT_TRUE(token_.release(nullptr));
  token_.await(first_, TimePoint::max());  // returns at once
  EXPECT_TRUE(token_.delist(first_));
}

using TokenDeathTest = ProgressLockTest;
TEST_F(TokenDeathTest, OnlyItsHolderGivesItBack) {
  EXPECT_DEATH((void)token_.release(nullptr), "does not hold it");
}

}  // namespace
}  // namespace ringdist
