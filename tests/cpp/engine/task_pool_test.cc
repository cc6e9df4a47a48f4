#include "engine/task_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <latch>
#include <stdexcept>
#include <system_error>
#include <thread>

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

// While it lives the system has no memory for the stack of another thread.
class NoThreads {
 public:
  NoThreads() {
    pthread_attr_t attributes;
    pthread_getattr_default_np(&attributes);
    pthread_attr_getstacksize(&attributes, &before_);
    set(size_t{1} << 46);
    pthread_attr_destroy(&attributes);
  }
  ~NoThreads() { set(before_); }

 private:
  static void set(size_t bytes) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, bytes);
    EXPECT_EQ(pthread_setattr_default_np(&attributes), 0);
    pthread_attr_destroy(&attributes);
  }
  size_t before_ = 0;
};

TEST(TaskPool, RunsItsTasksWhereTheSystemGivesNoThread) {
  TaskPool pool;
  std::latch first(1);
  pool.run([&] { first.count_down(); });
  first.wait();
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // idle ones have ended
  const NoThreads none;
  EXPECT_THROW(std::thread([] {}).join(), std::system_error);
  std::atomic<int> done{0};
  for (int i = 0; i < 10; ++i) pool.run([&] { ++done; });
  EXPECT_TRUE(pool.stop(Clock::now() + std::chrono::seconds(10)));
  EXPECT_EQ(done, 10);
  TaskPool other;
  EXPECT_THROW(other.run([] {}), std::system_error);
}

TEST(TaskPool, ATaskThatThrowsEndsNothingElse) {
  TaskPool pool;
  std::atomic<int> done{0};
  for (int i = 0; i < 10; ++i) {
    pool.run([] { throw std::runtime_error("for a test"); });
    pool.run([&] { ++done; });
  }
  EXPECT_TRUE(pool.stop(Clock::now() + std::chrono::seconds(10)));
  EXPECT_EQ(done, 10);
}

}  // namespace
}  // namespace ringdist
