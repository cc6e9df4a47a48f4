#include <gtest/gtest.h>

#include "torch/work/test_work.h"

namespace ringdist {
namespace {

TEST(BaseWork, AWaitThatExpiresIsNoFailure) {
  auto work = c10::make_intrusive<TestWork>();
  const FuturePtr future =
      work->getFuture();  // not marked as waited for, so waiting on it is not allowed
  EXPECT_EQ(thrown_by([&] { work->wait(Milliseconds(5)); }), "expired");
  EXPECT_EQ(work->told, 0);
  work->end();
  EXPECT_TRUE(work->wait());
  EXPECT_EQ(work->waits[0], Milliseconds(5));
  EXPECT_EQ(work->waits[1], std::nullopt);  // 0 means no limit
}

TEST(BaseWork, AFailureIsToldBeforeItIsThrown) {
  auto work = c10::make_intrusive<TestWork>();
  const FuturePtr future = work->getFuture();
  work->end(failure_of("lost"));
  EXPECT_EQ(thrown_by([&] { work->wait(); }), "lost");
  EXPECT_EQ(work->told, 1);
  EXPECT_TRUE(future->hasError());
}

TEST(BaseWork, HasOneFutureMadeOnDemand) {
  auto work = c10::make_intrusive<TestWork>();
  work->end();
  EXPECT_TRUE(work->wait());
  EXPECT_EQ(work->futures, 0);
  EXPECT_EQ(work->getFuture(), work->getFuture());
  EXPECT_EQ(work->futures, 1);
  EXPECT_TRUE(work->getFuture()->completed());
}

TEST(BaseWork, MakesNoFutureThatWouldNeverBeMarked) {
  auto work = c10::make_intrusive<TestWork>();
  work->refuses_futures = true;
  EXPECT_EQ(thrown_by([&] { work->getFuture(); }), "never marked");
  EXPECT_EQ(work->futures, 0);
}

}  // namespace
}  // namespace ringdist
