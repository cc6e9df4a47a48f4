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
  ProgressLock lock_;
};

TEST_F(ProgressLockTest, OneHasIt) {
  EXPECT_FALSE(lock_.held_by_this_thread());
  EXPECT_TRUE(lock_.take());
  EXPECT_FALSE(lock_.take());
  EXPECT_TRUE(lock_.held_by_this_thread());
  bool elsewhere = true;
  std::thread([&] { elsewhere = lock_.held_by_this_thread(); }).join();
  EXPECT_FALSE(elsewhere);
  EXPECT_FALSE(lock_.release(nullptr)) << "nobody waits";
  EXPECT_FALSE(lock_.held_by_this_thread());
  EXPECT_TRUE(lock_.take());
}

TEST_F(ProgressLockTest, GoesToTheFirstWhoWaits) {
  ASSERT_TRUE(lock_.take());
  lock_.enlist(first_);
  lock_.enlist(second_);
  EXPECT_TRUE(lock_.anybody_waits());
  EXPECT_TRUE(lock_.release(nullptr));
  EXPECT_FALSE(lock_.delist(second_)) << "it was offered to the first";
  lock_.await(first_, TimePoint::max());  // returns, because it has the offer
  lock_.withdraw_offer(first_);
  EXPECT_TRUE(lock_.take());
  EXPECT_FALSE(lock_.delist(first_));
  EXPECT_FALSE(lock_.anybody_waits());
}

TEST_F(ProgressLockTest, NotBackToWhoLeavesIt) {
  lock_.enlist(first_);
  ASSERT_TRUE(lock_.take());
  EXPECT_FALSE(lock_.release(&first_));
  lock_.enlist(second_);
  ASSERT_TRUE(lock_.take());
  EXPECT_TRUE(lock_.release(&first_));
  EXPECT_TRUE(lock_.delist(second_));
  EXPECT_FALSE(lock_.delist(first_));
}

TEST_F(ProgressLockTest, NotToWhoseOpHasFinished) {
  lock_.enlist(first_);
  lock_.enlist(second_);
  (void)a_.finish({});
  lock_.await(first_, TimePoint::max());  // returns, because its op has finished
  ASSERT_TRUE(lock_.take());
  EXPECT_TRUE(lock_.release(nullptr));
  EXPECT_FALSE(lock_.delist(first_));
  EXPECT_TRUE(lock_.delist(second_));
}

// The wait of the first caller times out just when it gets the offer, so the next caller must get
// it.
TEST_F(ProgressLockTest, AnOfferThatIsNotTakenIsPassedOn) {
  lock_.enlist(first_);
  lock_.enlist(second_);
  ASSERT_TRUE(lock_.take());
  EXPECT_TRUE(lock_.release(nullptr));
  ASSERT_TRUE(lock_.delist(first_)) << "says that it was offered";
  ASSERT_TRUE(lock_.take());
  EXPECT_TRUE(lock_.release(&first_));
  EXPECT_TRUE(lock_.delist(second_));
}

// Another caller was faster. The offer is void, and its receiver waits for the next one.
TEST_F(ProgressLockTest, AnOfferMayBeOvertaken) {
  lock_.enlist(first_);
  ASSERT_TRUE(lock_.take());
  EXPECT_TRUE(lock_.release(nullptr));
  ASSERT_TRUE(lock_.take()) << "another caller";
  lock_.withdraw_offer(first_);
  EXPECT_FALSE(lock_.take());
  lock_.await(first_, kNoWait);  // no offer, so it would sleep
  EXPECT_TRUE(lock_.release(nullptr));
  EXPECT_TRUE(lock_.delist(first_));
}

// An offer between the attempt and the sleep is not lost.
TEST_F(ProgressLockTest, AnOfferAfterAFailedAttemptStays) {
  ASSERT_TRUE(lock_.take());
  lock_.enlist(first_);
  lock_.withdraw_offer(first_);
  EXPECT_FALSE(lock_.take());
  EXPECT_TRUE(lock_.release(nullptr));
  lock_.await(first_, TimePoint::max());  // returns at once
  EXPECT_TRUE(lock_.delist(first_));
}

using ProgressLockDeathTest = ProgressLockTest;
TEST_F(ProgressLockDeathTest, OnlyItsHolderGivesItBack) {
  EXPECT_DEATH((void)lock_.release(nullptr), "does not hold it");
}

}  // namespace
}  // namespace ringdist
