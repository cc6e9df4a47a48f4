#include "negotiation/call_timeline.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>

#include "negotiation/named_ranks.h"
#include "support/text_of.h"

namespace ringdist {
namespace {

TEST(CallTimeline, HasWhatAllRanksHaveCalled) {
  const std::string folder = testing::TempDir() + "/calls" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/all.json";
  NamedRanks ranks(of_size(3));
  std::atomic<bool> stopped{false};
  ranks.run([&](int rank) {
    std::vector<float> data(3, 1.0f);
    const auto sum = [&](const std::string& name) {
      const Error error = ranks.call(rank, sum_of(name, data));
      ASSERT_FALSE(error) << error.what();
    };
    sum("before");
    if (rank == 0) {
      const Error error = ranks[0].start_timeline(path, true);
      ASSERT_FALSE(error) << error.what();
    }
    EXPECT_EQ(ranks[1].start_timeline(path, true).kind(), ErrorKind::kInvalidArgument);
    sum("x");
    sum("x");
    if (rank == 0) {
      const auto end = ranks[0].stop_timeline().value();
      ASSERT_TRUE(ranks[0].wait(*end, std::nullopt));
      EXPECT_FALSE(end->error());
      stopped = true;
    }
    while (!stopped) std::this_thread::yield();  // the progress of this rank continues
    sum("after");
  });
  for (int rank = 0; rank < 3; ++rank) {
    const std::string text = text_of(Timeline::part_of(path, rank));
    for (const char* what : {"allreduce.x", "NEGOTIATE_ALLREDUCE", "\"ALLREDUCE\"", "last: rank ",
                             "CYCLE_START", "all_reduce #"})
      EXPECT_NE(text.find(what), std::string::npos) << rank << ": " << what << "\n" << text;
    for (const char* what : {"before", "after"})
      EXPECT_EQ(text.find(what), std::string::npos) << rank << ": " << what;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace ringdist
