// FailureNotifier when the other ranks or the callback cannot be notified at first.
#include <gtest/gtest.h>

#include <new>
#include <string>
#include <vector>

#include "engine/group/failure_state.h"
#include "engine/group/notice.h"

namespace ringdist {
namespace {

const Error kCause(ErrorKind::kMismatch, "they differ");

// The part of GroupDelegate that a FailureNotifier uses.
struct Others {
  void flood(const Notice& notice) {
    if (--throws >= 0) throw std::bad_alloc();
    heard.push_back(notice.op);
  }
  int throws = 0;
  std::vector<uint64_t> heard;
};

Notice word(uint64_t op) { return abort_notice(7, 0, 0, op, kCause); }

TEST(FailureNotifier, TellsEachOnce) {
  Others others;
  std::vector<std::string> owner;
  FailureNotifier failure_notifier([&](const Error& cause) { owner.push_back(cause.message()); });
  EXPECT_TRUE(failure_notifier.done());
  failure_notifier.begin(3);
  EXPECT_FALSE(failure_notifier.done());
  for (int time = 0; time < 2; ++time) failure_notifier.notify_pending(others, kCause, word);
  EXPECT_TRUE(failure_notifier.done());
  EXPECT_EQ(others.heard, std::vector<uint64_t>{3});
  EXPECT_EQ(owner, std::vector<std::string>{"they differ"});
}

TEST(FailureNotifier, WhatIsThrownStaysDue) {
  Others others{1, {}};
  int owner_throws = 1;
  int owner = 0;
  FailureNotifier failure_notifier([&](const Error&) {
    if (--owner_throws >= 0) throw std::bad_alloc();
    ++owner;
  });
  failure_notifier.begin(3);
  for (int time = 0; time < 2; ++time) {
    failure_notifier.notify_pending(others, kCause, word);
    EXPECT_FALSE(failure_notifier.done());
  }
  failure_notifier.notify_pending(others, kCause, word);
  EXPECT_TRUE(failure_notifier.done());
  EXPECT_EQ(others.heard.size(), 1u);
  EXPECT_EQ(owner, 1);
}

TEST(FailureNotifier, TheOthersMayBeToldLater) {
  Others others;
  FailureNotifier failure_notifier(nullptr);
  failure_notifier.begin(std::nullopt);
  EXPECT_TRUE(failure_notifier.done());
  failure_notifier.tell(3);
  failure_notifier.notify_pending(others, kCause, word);
  EXPECT_EQ(others.heard.size(), 1u);
}

}  // namespace
}  // namespace ringdist
