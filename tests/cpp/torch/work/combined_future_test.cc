#include <gtest/gtest.h>

#include "torch/work/future.h"
#include "torch/work/test_work.h"

namespace ringdist {
namespace {

TEST(CombinedFuture, EndsWithItsLastPart) {
  CombinedFuture join({}, 2);
  join.arrive(nullptr);
  EXPECT_FALSE(join.future()->completed());
  join.arrive(nullptr);
  EXPECT_TRUE(join.future()->completed());
  EXPECT_TRUE(CombinedFuture({}, 0).future()->completed());
}

TEST(CombinedFuture, TheFirstErrorIsItsOwn) {
  CombinedFuture join({}, 3);
  join.arrive(failure_of("first"));
  EXPECT_TRUE(join.future()->hasError());
  join.arrive(failure_of("second"));
  join.arrive(nullptr);
  EXPECT_EQ(join.future()->tryRetrieveErrorMessage(), "first");
}

}  // namespace
}  // namespace ringdist
