#include "engine/inbound_window.h"

#include <gtest/gtest.h>

namespace ringdist {
namespace {

using namespace std::chrono_literals;

// `count` messages of `bytes`, one every `gap`.
TimePoint arrive(InboundWindow& window, TimePoint now, int count, size_t bytes, Duration gap) {
  for (int i = 0; i < count; ++i) window.arrived(bytes, now += gap);
  return now;
}

TEST(InboundWindow, HasNoLimitBeforeItKnowsARate) {
  InboundWindow window;
  EXPECT_EQ(window.share(3), InboundWindow::kUnlimited);
  // 19 ms in all: a short op says nothing.
  arrive(window, TimePoint(), 20, 1000, 1ms);
  EXPECT_EQ(window.share(3), InboundWindow::kUnlimited);
}

TEST(InboundWindow, SharesWhatTheLinkDeliversInAMoment) {
  InboundWindow window;
  arrive(window, TimePoint(), 100, 12'000, 1ms);  // 12 MB/s
  EXPECT_NEAR(static_cast<double>(window.share(1)), 240'000, 1);
  EXPECT_NEAR(static_cast<double>(window.share(3)), 80'000, 1);
}

TEST(InboundWindow, PausesDoNotLowerTheRate) {
  InboundWindow window;
  TimePoint now;
  for (int op = 0; op < 50; ++op) {
    now = arrive(window, now, 30, 12'000, 1ms);
    window.pause();
    now += 500ms;
  }
  EXPECT_NEAR(static_cast<double>(window.share(1)), 240'000, 1);
}

TEST(InboundWindow, FollowsALinkThatSlowsDown) {
  InboundWindow window;
  TimePoint now = arrive(window, TimePoint(), 100, 120'000, 1ms);
  now = arrive(window, now, 200, 12'000, 1ms);
  EXPECT_NEAR(static_cast<double>(window.share(1)), 2'400'000, 10)
      << "too early: it may be a pause";
  arrive(window, now, 200, 12'000, 1ms);
  EXPECT_NEAR(static_cast<double>(window.share(1)), 240'000, 1);
}

TEST(InboundWindow, AFarSenderMayHaveTwiceItsDistance) {
  InboundWindow window;
  arrive(window, TimePoint(), 100, 12'000, 1ms);
  window.answered(80ms);
  window.answered(50ms);
  window.answered(60ms);
  EXPECT_NEAR(static_cast<double>(window.share(1)), 1'200'000, 1);
  window.answered(2ms);
  EXPECT_NEAR(static_cast<double>(window.share(1)), 240'000, 1);
}

}  // namespace
}  // namespace ringdist
