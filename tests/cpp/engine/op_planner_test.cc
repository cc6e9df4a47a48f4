#include "engine/op_planner.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

namespace ringdist {
namespace {

constexpr int64_t kLargeCount = int64_t{1} << 20;

std::shared_ptr<Op> planned_op(OpPlanner& planner, Collective kind = Collective::kAllreduce) {
  OpRequest request;
  request.kind = kind;
  request.reduce_op = kind == Collective::kAllreduce ? ReduceOp::kSum : ReduceOp::kNone;
  request.count = kLargeCount;
  auto op = std::make_shared<Op>(std::move(request));
  const Error error = planner.plan(op);
  EXPECT_FALSE(error) << error.message();
  return op;
}

std::string algorithm_of(const Op& op) { return std::string(op.plan.algorithm->name); }

OpPlanner planner_of(int size) { return OpPlanner({0, size, "", false, 258048}); }

const NetworkCosts kCosts = GroupCosts().constants;
const Topology kPairs = Topology::from_hosts({{0, 1}, {2, 3}}, 4);

TEST(OpPlanner, PlansAnewWhatWasCalledBeforeTheTopologyWasKnown) {
  OpPlanner planner = planner_of(4);
  const auto early = planned_op(planner);
  const auto provisional = early->schedule;
  const Fingerprint before = early->fingerprint;
  EXPECT_EQ(algorithm_of(*early), "ring");
  planner.on_formed(kPairs, kCosts);
  const auto later = planned_op(planner);
  EXPECT_EQ(algorithm_of(*early), "hierarchical");
  EXPECT_NE(early->schedule, provisional);
  EXPECT_EQ(early->schedule, later->schedule);
  EXPECT_EQ(early->fingerprint, later->fingerprint);
  EXPECT_NE(early->fingerprint, before) << "others are told of another plan";
}

// A wait with a short limit calls describe() like this, on the thread of the caller.
TEST(OpPlanner, AnEarlyOpMayBeDescribedWhileItIsPlannedAnew) {
  OpPlanner planner = planner_of(4);
  const auto early = planned_op(planner);
  const std::string text = early->describe();
  std::thread caller([&] {
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(early->describe(), text);
  });
  planner.on_formed(kPairs, kCosts);
  caller.join();
}

TEST(OpPlanner, OnOneHostThePlansStay) {
  OpPlanner planner = planner_of(4);
  const auto early = planned_op(planner);
  const auto schedule = early->schedule;
  planner.on_formed(Topology::one_host(4), kCosts);
  EXPECT_EQ(early->schedule, schedule);
  EXPECT_EQ(planned_op(planner)->schedule, schedule) << "it was kept";
}

TEST(OpPlanner, PlansByTheCostsThatItIsTold) {
  NetworkCosts costs = kCosts;
  costs.between.latency *= 2;
  OpPlanner planner = planner_of(4);
  const auto early = planned_op(planner);
  const auto schedule = early->schedule;
  planner.on_formed(Topology::one_host(4), costs);
  EXPECT_NE(early->schedule, schedule) << "it was made by other costs";
  EXPECT_EQ(planned_op(planner)->schedule, early->schedule);
}

TEST(OpPlanner, HoldsNoOpForLonger) {
  for (const bool forms : {true, false}) {
    OpPlanner planner = planner_of(4);
    std::weak_ptr<Op> early = planned_op(planner);
    EXPECT_FALSE(early.expired()) << "the group needs its plan anew";
    if (forms) planner.on_formed(kPairs, kCosts);
    planner.forget();
    EXPECT_TRUE(early.expired());
  }
  OpPlanner alone = planner_of(1);
  std::weak_ptr<Op> op = planned_op(alone);
  EXPECT_TRUE(op.expired());
  alone.on_formed(Topology::one_host(1), kCosts);  // called when the group forms
  EXPECT_NE(planned_op(alone)->schedule, nullptr);
}

TEST(OpPlanner, RefusesAtOnce) {
  OpPlanner planner({0, 4, "pigeon", false, 258048});
  OpRequest request;
  request.count = 1;
  const Error error = planner.plan(std::make_shared<Op>(std::move(request)));
  EXPECT_NE(error.message().find("unknown algorithm 'pigeon'"), std::string::npos);
}

}  // namespace
}  // namespace ringdist
