#include "base/describe.h"

#include <gtest/gtest.h>

namespace ringdist {
namespace {

TEST(Describe, NamesWhatIsKnown) {
  EXPECT_EQ(describe_process(12, "a"), "pid 12 on host a");
  EXPECT_EQ(describe_process(0, ""), "pid unknown on host unknown");
  EXPECT_EQ(describe_rank(3, describe_process(12, "a")), "rank 3 (pid 12 on host a)");
  EXPECT_EQ(describe_rank(3, ""), "rank 3");
}

}  // namespace
}  // namespace ringdist
