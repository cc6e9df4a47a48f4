#include "engine/task_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>

namespace ringdist {
namespace {

// A task may wait for another that was queued after it: as a Future's callback does.
TEST(TaskPool, ATaskNeverWaitsForAThread) {
  TaskPool pool;
  constexpr int kTasks = 16;
  std::latch all_run(kTasks);
  for (int i = 0; i < kTasks; ++i) pool.run([&] { all_run.arrive_and_wait(); });
  all_run.wait();
  EXPECT_TRUE(pool.stop(Clock::now() + std::chrono::seconds(10)));
}

TEST(TaskPool, StopWaitsForWhatRuns) {
  TaskPool pool;
  std::atomic<int> done{0};
  for (int i = 0; i < 100; ++i) pool.run([&] { ++done; });
  ASSERT_TRUE(pool.stop(Clock::now() + std::chrono::seconds(10)));
  EXPECT_EQ(done, 100);
  pool.run([&] { ++done; });
  EXPECT_EQ(done, 100);
}

TEST(TaskPool, StopGivesUpAtItsDeadline) {
  std::latch let_go(1);
  std::latch ended(1);
  {
    TaskPool pool;
    pool.run([&] {
      let_go.wait();
      ended.count_down();
    });
    EXPECT_FALSE(pool.stop(Clock::now() + std::chrono::milliseconds(50)));
    let_go.count_down();
    EXPECT_TRUE(pool.stop(Clock::now() + std::chrono::seconds(10)));
  }
  ended.wait();
}

}  // namespace
}  // namespace ringdist
