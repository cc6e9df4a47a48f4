// Information about the ranks that a group waits for, in dump() and in the log.
#include <gtest/gtest.h>

#include <thread>

#include "support/ranks.h"

namespace ringdist {
namespace {

bool contains(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

// Returns the first line of a rank's dump as soon as it contains `words`, or "" after a while.
std::string headline(Ranks& ranks, int rank, const std::string& words) {
  for (int i = 0; i < 500; ++i) {
    const std::string text = ranks.context(rank).dump();
    const std::string line = text.substr(0, text.find('\n'));
    if (contains(line, words)) return line;
    std::this_thread::sleep_for(Milliseconds(20));
  }
  return "";
}

Error reduce(Ranks& ranks, int rank) {
  std::vector<float> data(4, 1.0f);
  return run_op(ranks[rank], allreduce_request(data, DType::kFloat32, ReduceOp::kSum));
}

TEST(Dump, LeadsWithWhoIsWaitedForAndWhoHasCalledWhat) {
  RanksOptions options;
  options.size = 3;
  Ranks ranks(options);
  std::string waits, awaited;
  ranks.run([&](int rank) {
    EXPECT_FALSE(reduce(ranks, rank));
    if (rank == 1) {
      waits = headline(ranks, 0, "has not called it");
      awaited = headline(ranks, 1, "waits in it");
    }
    EXPECT_FALSE(reduce(ranks, rank));
  });
  EXPECT_TRUE(contains(waits, "all_reduce #2 (float32, 4 elements, SUM) has been waiting "));
  EXPECT_TRUE(contains(waits, " s for rank 1 (pid ")) << waits;
  EXPECT_TRUE(contains(waits, "which has not called it (its last: #1)")) << waits;
  EXPECT_FALSE(contains(waits, "rank 2")) << waits;
  EXPECT_TRUE(contains(awaited, "op #2, all_reduce(float32, 4 elements, SUM), has not been called"))
      << awaited;
  EXPECT_TRUE(contains(awaited, "rank 0 (pid ")) << awaited;
  EXPECT_NE(headline(ranks, 0, "no operation in flight"), "");
}

std::string warnings(const std::string& after) {
  RanksOptions options;
  options.config = {{"warn_after", after}};
  Ranks ranks(options);
  testing::internal::CaptureStderr();
  ranks.run([&](int rank) {
    // Sleeps for 3 s. A pause of the process counts as one step, so rank 0 still warns in time.
    for (int i = 0; rank == 1 && i < 150; ++i) std::this_thread::sleep_for(Milliseconds(20));
    EXPECT_FALSE(reduce(ranks, rank));
  });
  return testing::internal::GetCapturedStderr();
}

TEST(Warning, ComesOnceForAnOp) {
  const std::string text = warnings("1.5");  // after the desync check
  const auto first = text.find("warn: rank 0 of group ");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_TRUE(contains(text, ": all_reduce #1 (float32, 4 elements, SUM) has been waiting "));
  EXPECT_TRUE(contains(text, "which has not called it (it has called none)")) << text;
  EXPECT_EQ(text.find("all_reduce #1", text.find("all_reduce #1") + 1), std::string::npos) << text;
}

TEST(Warning, DoesNotComeWhereItIsOff) { EXPECT_EQ(warnings("0"), ""); }

}  // namespace
}  // namespace ringdist
