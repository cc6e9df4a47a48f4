// The fair queue of flows, and the queue of events.
#include <gtest/gtest.h>

#include <vector>

#include "simulate/network_model.h"

namespace ringdist {
namespace {

TimePoint moment(int64_t nanoseconds) { return TimePoint(std::chrono::nanoseconds(nanoseconds)); }

TEST(FairQueue, ServesEachFlowOnceBeforeAnyAgain) {
  FairQueue turns;
  for (const int id : {10, 11, 12}) turns.add(1, {id, Duration(5)});
  for (const int id : {20, 21}) turns.add(2, {id, Duration(5)});
  std::vector<int> order;
  while (const auto job = turns.begin()) {
    order.push_back(job->id);
    EXPECT_FALSE(turns.begin()) << "one at a time";
    turns.end();
    if (job->id == 11) turns.add(3, {30, Duration(5)});
  }
  EXPECT_EQ(order, (std::vector<int>{10, 20, 11, 21, 12, 30}));
}

TEST(FairQueue, BeginsNothingWhileHeld) {
  FairQueue turns;
  turns.hold(true);
  turns.add(1, {1, Duration(1)});
  EXPECT_FALSE(turns.begin());
  turns.hold(false);
  EXPECT_TRUE(turns.begin());
}

TEST(SerialLink, WhatComesSlowlyPassesAsItComes) {
  SerialLink line;
  const auto slow = line.pass(moment(0), moment(100), Duration(10));
  EXPECT_EQ(slow.last, moment(100));
  const auto next = line.pass(moment(50), moment(60), Duration(10));
  EXPECT_EQ(next.first, moment(100));
  EXPECT_EQ(next.last, moment(110));
}

TEST(EventQueue, OfOneTimeTheFirstAddedIsFirst) {
  EventQueue<int> queue;
  queue.add(moment(5), 1);
  queue.add(moment(3), 2);
  queue.add(moment(5), 3);
  EXPECT_EQ(queue.next(), moment(3));
  std::vector<int> order;
  while (!queue.empty()) order.push_back(queue.pop().what);
  EXPECT_EQ(order, (std::vector<int>{2, 1, 3}));
  EXPECT_FALSE(queue.next());
}

}  // namespace
}  // namespace ringdist
