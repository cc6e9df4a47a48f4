#include "os/thread_usage.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

namespace ringdist {
namespace {

void compute_for(Duration time) {
  for (const TimePoint end = Clock::now() + time; Clock::now() < end;) {
  }
}

// Runs `body` between two measurements, on a thread of its own.
ThreadUsage usage_of(const std::function<void()>& body) {
  ThreadUsage out;
  std::thread([&] {
    EXPECT_EQ(measure_thread_usage(Clock::now()).elapsed, 0u) << "the first one";
    body();
    out = measure_thread_usage(Clock::now());
  }).join();
  return out;
}

TEST(ThreadUsage, TellsComputingFromSleep) {
  const ThreadUsage busy = usage_of([] { compute_for(Milliseconds(200)); });
  EXPECT_GE(busy.elapsed, 200000u);
  // Both together, because others may use the cores.
  EXPECT_GE(busy.cpu + busy.run_delay, busy.elapsed * 8 / 10);
  EXPECT_GT(busy.cpu, 0u);
  const ThreadUsage asleep = usage_of([] { std::this_thread::sleep_for(Milliseconds(200)); });
  EXPECT_GE(asleep.elapsed, 200000u);
  EXPECT_LE(asleep.cpu, asleep.elapsed / 4);
}

TEST(ThreadUsage, IsNotMeasuredTooOften) {
  const ThreadUsage now = usage_of([] {});
  EXPECT_EQ(now.elapsed, 0u);
}

TEST(ThreadUsage, RunDelayGrows) {
  const Duration before = run_delay_of_this_thread();
  compute_for(Milliseconds(50));
  EXPECT_GE(run_delay_of_this_thread(), before);
}

}  // namespace
}  // namespace ringdist
