#include <gtest/gtest.h>

#include "engine/op/flow_control.h"

namespace ringdist {
namespace {

using namespace std::chrono_literals;

// Lets `count` messages of `bytes` arrive, one every `gap`. Returns the time of the last one.
TimePoint arrive(InboundWindow& window, TimePoint now, int count, size_t bytes, Duration gap) {
  for (int i = 0; i < count; ++i) window.arrived(bytes, now += gap);
  return now;
}

// Runs one op with such messages.
TimePoint run(InboundWindow& window, TimePoint now, int count, size_t bytes, Duration gap) {
  window.begin();
  now = arrive(window, now, count, bytes, gap);
  window.end(now);
  return now;
}

double share(const InboundWindow& window) { return static_cast<double>(window.share(1)); }

TEST(InboundWindow, HasNoLimitBeforeItKnowsARate) {
  InboundWindow window;
  EXPECT_EQ(window.share(3), InboundWindow::kUnlimited);
  run(window, TimePoint(), 5, 1000, 1ms);  // too short to measure
  run(window, TimePoint(), 1, 1000, 1ms);
  EXPECT_EQ(window.share(3), InboundWindow::kUnlimited);
}

TEST(InboundWindow, SharesWhatTheLinkDeliversInAMoment) {
  InboundWindow window;
  run(window, TimePoint(), 100, 12'000, 1ms);  // 12 MB/s
  EXPECT_NEAR(share(window), 240'000, 1);
  EXPECT_NEAR(static_cast<double>(window.share(3)), 80'000, 1);
}

TEST(InboundWindow, PausesBetweenOpsDoNotLowerTheRate) {
  InboundWindow window;
  TimePoint now;
  for (int op = 0; op < 50; ++op) now = run(window, now, 30, 12'000, 1ms) + 500ms;
  EXPECT_NEAR(share(window), 240'000, 1);
}

TEST(InboundWindow, NorDoLateSenders) {
  InboundWindow window;
  TimePoint now;
  for (int op = 0; op < 50; ++op) {
    window.begin();
    now = arrive(window, now, 1, 12'000, 1ms) + 500ms;
    now = arrive(window, now, 10, 12'000, 1ms);  // ends after a short time
    window.end(now);
  }
  EXPECT_NEAR(share(window), 240'000, 1);
}

TEST(InboundWindow, OpsThatOverlapAreMeasuredTogether) {
  InboundWindow window;
  window.begin();
  const TimePoint now = run(window, TimePoint(), 100, 12'000, 1ms);
  arrive(window, now, 100, 24'000, 1ms);
  EXPECT_NEAR(share(window), 480'000, 1);
}

TEST(InboundWindow, FollowsALinkThatSlowsDown) {
  InboundWindow window;
  TimePoint now = run(window, TimePoint(), 100, 120'000, 1ms);
  now = run(window, now, 200, 12'000, 1ms);
  EXPECT_NEAR(share(window), 2'400'000, 10) << "too early: senders may be late";
  run(window, now, 200, 12'000, 1ms);
  EXPECT_NEAR(share(window), 240'000, 1);
}

TEST(InboundWindow, AFarSenderMayHaveTwiceItsDistance) {
  InboundWindow window;
  run(window, TimePoint(), 100, 12'000, 1ms);
  window.answered(80ms);
  window.answered(50ms);
  window.answered(60ms);
  EXPECT_NEAR(share(window), 1'200'000, 1);
  window.answered(2ms);
  EXPECT_NEAR(share(window), 240'000, 1);
}

}  // namespace
}  // namespace ringdist
