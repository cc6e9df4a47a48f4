#include "torch/work/combined_work.h"

#include <gtest/gtest.h>

#include <vector>

#include "torch/work/test_work.h"

namespace ringdist {
namespace {

struct Joined {
  std::vector<TestWorkPtr> parts{c10::make_intrusive<TestWork>(), c10::make_intrusive<TestWork>()};
  int made = 0;
  c10::intrusive_ptr<CombinedWork> work = c10::make_intrusive<CombinedWork>(
      completion(), 0, c10d::OpType::COALESCED, [this]() -> CombinedWork::Parts {
        ++made;
        return {parts[0], parts[1]};
      });
};

TEST(CombinedWork, TheFirstQuestionStartsNothing) {
  Joined joined;
  EXPECT_FALSE(joined.work->isCompleted());
  EXPECT_EQ(joined.made, 0);
  EXPECT_FALSE(joined.work->isCompleted());
  EXPECT_EQ(joined.made, 1);
  for (const auto& part : joined.parts) part->end();
  EXPECT_TRUE(joined.work->isCompleted());
  EXPECT_TRUE(joined.work->isSuccess());
  EXPECT_EQ(joined.made, 1);
}

TEST(CombinedWork, ItsFutureIsMarkedWithTheLastPart) {
  Joined joined;
  const FuturePtr future = joined.work->getFuture();
  joined.parts[0]->end();
  EXPECT_FALSE(future->completed());
  joined.parts[1]->end();
  EXPECT_TRUE(future->completed());
  EXPECT_TRUE(joined.work->wait());
}

TEST(CombinedWork, APartsFailureIsTheWholes) {
  Joined joined;
  joined.parts[0]->end();
  joined.parts[1]->end(failure_of("lost"));
  EXPECT_EQ(thrown_by([&] { joined.work->wait(Milliseconds(50)); }), "lost");
  EXPECT_EQ(joined.parts[1]->told, 1);
  EXPECT_FALSE(joined.work->isSuccess());
  EXPECT_TRUE(joined.work->getFuture()->hasError());
  // The rest of the limit. It is never 0, which would mean no limit.
  ASSERT_TRUE(joined.parts[1]->waits.at(0));
  EXPECT_GE(*joined.parts[1]->waits[0], Milliseconds(1));
  EXPECT_LE(*joined.parts[1]->waits[0], Milliseconds(50));
}

TEST(CombinedWork, WhatHinderedTheStartIsTheOutcome) {
  auto work = c10::make_intrusive<CombinedWork>(
      completion(), 0, c10d::OpType::COALESCED,
      []() -> CombinedWork::Parts { throw std::runtime_error("refused"); });
  EXPECT_EQ(thrown_by([&] { work->wait(); }), "refused");
  EXPECT_EQ(thrown_by([&] { work->start(); }), "refused");
  EXPECT_FALSE(work->isSuccess());
  EXPECT_EQ(work->getFuture()->tryRetrieveErrorMessage(), "refused");
}

TEST(CombinedWork, OneWorkIsItself) {
  const auto only = c10::make_intrusive<TestWork>();
  EXPECT_EQ(join_works(completion(), 0, c10d::OpType::UNKNOWN, {only}), only);
}

}  // namespace
}  // namespace ringdist
