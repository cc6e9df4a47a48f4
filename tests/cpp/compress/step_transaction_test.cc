// State after a step, for every outcome of the step.
#include "compress/step_transaction.h"

#include <gtest/gtest.h>

#include "fakes.h"

namespace ringdist {
namespace {

class StepTransactionTest : public ::testing::Test {
 protected:
  using State = StepTransaction::State;
  using Outcome = StepTransaction::Outcome;
  using Values = std::vector<float>;

  StepTransactionTest() {
    residual.replace(FloatBuffer(host_memory(), 2));
    residual.values.assign(Values{1, 2});
    residual.nonzero = true;
    parameter.residual = &residual;
    for (FloatBuffer* factor : {&parameter.right, &parameter.next_right})
      *factor = FloatBuffer(host_memory(), 1);
    parameter.right.assign(Values{3});
    parameter.next_right.assign(Values{4});
  }

  void arrive(size_t index, bool last = false) {
    Bucket bucket;
    bucket.index = index;
    bucket.last = last;
    changes.arrive(bucket);
  }
  // Adds a bucket that is pending. On success, the residuals become `next` and the next
  // approximation starts from its new right factor.
  std::shared_ptr<FakePending> bring(size_t index, bool last, Values next) {
    arrive(index, last);
    std::ranges::copy(next, residual.begin().to);
    changes.add_residual(parameter, next != Values{0, 0});
    changes.add_right(parameter);
    auto out = std::make_shared<FakePending>();
    changes.add_bucket(out);
    return out;
  }
  void expect(const Values& old_residual, float right) const {
    EXPECT_EQ(residual.values.on_host(), old_residual);
    EXPECT_EQ(parameter.right.on_host(), Values{right});
  }

  Residual residual;
  Parameter parameter{parameter_of(nullptr, {2}), {}, {}, {}, {}, {}, {}, {}};
  StepTransaction changes;
};

TEST_F(StepTransactionTest, TakeEffectWhenAllBucketsSucceeded) {
  changes.begin();
  const auto bucket = bring(0, true, {5, 6});
  EXPECT_EQ(changes.try_commit(), Outcome::kOpen);  // the bucket is pending
  expect({1, 2}, 3);
  bucket->end();
  EXPECT_EQ(changes.try_commit(), Outcome::kSucceeded);
  expect({5, 6}, 4);
  EXPECT_EQ(changes.state(), State::kIdle);
}

TEST_F(StepTransactionTest, ThoseOfDevicesAreAwaitedOnceAllHaveCome) {
  changes.begin();
  const auto first = bring(0, false, {5, 6});
  int waits = 0;
  for (const auto& bucket : {first, bring(1, false, {5, 6})})
    bucket->on_wait = [&, bucket = bucket.get()] { ++waits, bucket->end(); };
  first->on_device = true;
  changes.await_devices();
  EXPECT_EQ(waits, 0) << "more are to come";
  *changes.all_in() = true;
  changes.await_devices();
  EXPECT_EQ(waits, 1) << "the other one's values are there when it has ended";
  EXPECT_TRUE(first->ended());
}

TEST_F(StepTransactionTest, ASentResidualIsCleared) {
  changes.begin();
  bring(0, true, {0, 0})->end();
  EXPECT_EQ(changes.try_commit(), Outcome::kSucceeded);
  EXPECT_FALSE(residual.nonzero);
}

TEST_F(StepTransactionTest, AFailureLeavesAllAsItWas) {
  const std::vector<std::function<void()>> ways{
      [&] { arrive(1, true); },  // the first bucket fails
      [&] { changes.fail(); },   // the second bucket does not start
      [&] { changes.end(); }};   // the second bucket does not arrive
  for (size_t way = 0; way < ways.size(); ++way) {
    SCOPED_TRACE(way);
    changes.begin();
    const auto bucket = bring(0, false, {5, 6});
    ways[way]();
    EXPECT_EQ(changes.try_commit(), Outcome::kOpen);  // the other bucket is pending
    bucket->end(/*failed=*/way == 0);
    EXPECT_EQ(changes.try_commit(), Outcome::kFailed);
    expect({1, 2}, 3);
    EXPECT_TRUE(residual.nonzero);
    EXPECT_EQ(changes.state(), State::kIdle);
  }
}

TEST_F(StepTransactionTest, TheEndOfThePassStandsForTheLastBucket) {
  changes.begin();
  bring(0, false, {5, 6})->end();
  EXPECT_EQ(changes.try_commit(), Outcome::kOpen);
  *changes.all_in() = true;  // the backward pass has ended
  EXPECT_EQ(changes.try_commit(), Outcome::kSucceeded);
  expect({5, 6}, 4);
}

TEST_F(StepTransactionTest, TheNextStepKnowsNothingOfOneThatWasLeftOpen) {
  changes.begin();
  const auto left = bring(0, false, {5, 6});
  const auto flag = changes.all_in();
  changes.begin();
  *flag = true;  // belongs to the abandoned step
  left->end(/*failed=*/true);
  EXPECT_EQ(changes.try_commit(), Outcome::kOpen);
  arrive(0, true);
  EXPECT_EQ(changes.try_commit(), Outcome::kSucceeded);
  expect({1, 2}, 3);
}

TEST_F(StepTransactionTest, TheEndWaitsForWhatIsOnItsWay) {
  changes.begin();
  const auto bucket = bring(0, true, {5, 6});
  bucket->on_wait = [&] { bucket->end(); };
  changes.end();
  EXPECT_EQ(changes.try_commit(), Outcome::kSucceeded);
}

TEST_F(StepTransactionTest, BetweenStepsNothingFails) {
  changes.fail();
  changes.end();
  EXPECT_EQ(changes.state(), State::kIdle);
  EXPECT_EQ(changes.try_commit(), Outcome::kOpen);
}

// Buckets arrive in index order, and some may be missing.
TEST_F(StepTransactionTest, ABucketThatIsNotBehindTheLastBeginsAStep) {
  EXPECT_TRUE(changes.begins_with(0));
  changes.begin();
  arrive(1);
  EXPECT_FALSE(changes.begins_with(2));
  EXPECT_TRUE(changes.begins_with(1));
  EXPECT_TRUE(changes.begins_with(0));
  arrive(3, true);
  EXPECT_TRUE(changes.begins_with(4));
}

}  // namespace
}  // namespace ringdist
