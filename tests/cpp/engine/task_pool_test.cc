#include "engine/context/task_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "support/no_threads.h"

namespace ringdist {
namespace {

// A task may wait for a task that was queued after it, as callbacks of Futures do.
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

TEST(TaskPool, ACallGetsAnAnswerInEachCase) {
  using Answer = Result<int>;
  TaskPool pool;
  const auto in = [](auto time) { return Clock::now() + time; };
  EXPECT_EQ(
      pool.call_until<int>(in(std::chrono::seconds(10)), [] { return Answer(7); }, "").value(), 7);
  std::latch let_go(1);
  const auto late = pool.call_until<int>(
      in(std::chrono::milliseconds(20)),
      [&] {
        let_go.wait();
        return Answer(7);
      },
      "it is late");
  EXPECT_EQ(late.error().kind(), ErrorKind::kTimeout);
  EXPECT_EQ(late.error().message(), "it is late");
  let_go.count_down();
  ASSERT_TRUE(pool.stop(in(std::chrono::seconds(10))));
  const auto after = pool.call_until<int>(
      in(std::chrono::seconds(1)), [] { return Answer(7); }, "it waited until its deadline");
  EXPECT_EQ(after.error().kind(), ErrorKind::kAborted) << after.error().message();
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

TEST(TaskPool, CallbacksAreWaitedForAfterItsEnd) {
  std::latch let_go(1);
  std::atomic<bool> freed{false};
  TaskPool pool;
  auto held = std::shared_ptr<int>(new int(0), [&](const int* it) {
    delete it;
    freed = true;
  });
  pool.run_callbacks([&let_go, held = std::move(held)] { let_go.wait(); });
  EXPECT_FALSE(pool.stop(Clock::now() + std::chrono::milliseconds(20)));
  EXPECT_FALSE(pool.await_callbacks(Clock::now() + std::chrono::milliseconds(20)));
  EXPECT_FALSE(pool.run_callbacks([] {})) << "dropped";
  let_go.count_down();
  EXPECT_TRUE(pool.await_callbacks(Clock::now() + std::chrono::seconds(10)));
  EXPECT_TRUE(freed);
}

// The thread that starts a task may block all signals, as the project's own threads do.
TEST(TaskPool, ThreadsAreAsTheirPoolsMaker) {
  TaskPool pool;
  sigset_t all, before, found;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const CpuSet cpus = CpuSet::of(pthread_self());
  const auto one = CpuSet::parse("0");
  const bool bound = (cpus & *one).bind(pthread_self());
  CpuSet theirs;
  std::latch done(1);
  pool.run([&] {
    pthread_sigmask(SIG_SETMASK, nullptr, &found);
    theirs = CpuSet::of(pthread_self());
    done.count_down();
  });
  done.wait();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (bound) cpus.bind(pthread_self());
  EXPECT_EQ(sigismember(&found, SIGTERM), sigismember(&before, SIGTERM));
  EXPECT_TRUE(theirs == cpus);
}

TEST(TaskPool, RunsItsTasksWhereTheSystemGivesNoThread) {
  TaskPool pool;
  std::latch first(1);
  pool.run([&] { first.count_down(); });
  first.wait();
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // the idle threads have ended
  const NoThreads none;
  EXPECT_THROW(std::thread([] {}).join(), std::system_error);
  std::atomic<int> done{0};
  for (int i = 0; i < 10; ++i) pool.run([&] { ++done; });
  EXPECT_TRUE(pool.stop(Clock::now() + std::chrono::seconds(10)));
  EXPECT_EQ(done, 10);
  TaskPool other;
  EXPECT_THROW(other.run([] {}), std::system_error);
  const std::string said = other.try_to_run([] {}).message();
  EXPECT_NE(said.find("raise 'ulimit -u'"), std::string::npos) << said;
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
