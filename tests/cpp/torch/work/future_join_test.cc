#include "torch/work/future_join.h"

#include <gtest/gtest.h>

#include "torch/work/test_work.h"

namespace ringdist {
namespace {

TEST(FutureJoin, EndsWithItsLastPart) {
  FutureJoin join({}, 2);
  join.arrive(nullptr);
  EXPECT_FALSE(join.future()->completed());
  join.arrive(nullptr);
  EXPECT_TRUE(join.future()->completed());
  EXPECT_TRUE(FutureJoin({}, 0).future()->completed());
}

TEST(FutureJoin, TheFirstErrorIsItsOwn) {
  FutureJoin join({}, 3);
  join.arrive(failure_of("first"));
  EXPECT_TRUE(join.future()->hasError());
  join.arrive(failure_of("second"));
  join.arrive(nullptr);
  EXPECT_EQ(join.future()->tryRetrieveErrorMessage(), "first");
}

}  // namespace
}  // namespace ringdist
