// Compares predictions of the simulation of schedules with the engine over the simulated network,
// both with the same costs.
#include "simulate/simulation.h"

#include <gtest/gtest.h>

#include <chrono>

#include "engine/op/execution_state.h"
#include "support/sim_op.h"
#include "support/sim_ranks.h"

namespace ringdist {
namespace {

using std::chrono::microseconds;

struct Walkable {
  const char* algorithm;
  Collective kind;
  int64_t count;  // like the count in Shape
};

constexpr Walkable kWalkable[] = {
    {"ring", Collective::kAllreduce, 1'000'000},
    {"ring", Collective::kAllreduce, 1000},
    {"ring", Collective::kAllgather, 20'000},
    {"ring", Collective::kReduceScatter, 20'000},
    {"direct", Collective::kAllreduce, 500'000},
    {"direct", Collective::kAllreduce, 1000},
    {"direct", Collective::kAlltoall, 10'000},
    {"direct", Collective::kAllgather, 10'000},
    {"direct", Collective::kBroadcast, 100'000},
    {"direct", Collective::kGather, 10'000},
    {"tree", Collective::kBroadcast, 1'000'000},
    {"tree", Collective::kBroadcast, 100},
    {"one_shot", Collective::kAllreduce, 1000},
    {"recursive_doubling", Collective::kAllreduce, 1000},
    {"recursive_doubling", Collective::kAllreduce, 100'000},
    {"dissemination", Collective::kBarrier, 0},
    {"hierarchical", Collective::kAllreduce, 500'000},
    {"hierarchical", Collective::kAllreduce, 1000},
    {"hierarchical", Collective::kAllgather, 20'000},
    {"hierarchical", Collective::kReduceScatter, 20'000},
    {"hierarchical", Collective::kBroadcast, 1'000'000},
    {"hierarchical", Collective::kReduce, 100'000},
    {"hierarchical_direct", Collective::kAllreduce, 500'000},
    {"hierarchical_direct", Collective::kAllreduce, 1000},
    {"hierarchical_direct", Collective::kAllgather, 10'000},
    {"hierarchical_direct", Collective::kReduceScatter, 10'000},
    {"hierarchical_direct", Collective::kBroadcast, 100'000},
    {"hierarchical_direct", Collective::kGather, 10'000},
};

// In the engine, credit and grants are messages, too, and senders wait for them. The simulation
// models only the window of an edge.
enum class FlowControl : uint8_t { kAsEver, kNone };

struct WalkedLayout {
  int size;
  int per_host;
  double bits_per_second;
};

Topology topology_of(const WalkedLayout& layout) {
  const std::vector<int> hosts = hosts_of(layout.size, layout.per_host);
  std::vector<std::vector<int>> ranks(static_cast<size_t>(hosts.back()) + 1);
  for (int rank = 0; rank < layout.size; ++rank)
    ranks[static_cast<size_t>(hosts[static_cast<size_t>(rank)])].push_back(rank);
  return Topology::from_hosts(ranks, layout.size);
}

// Returns costs with memory slow enough that more than the number of messages matters.
NetworkCosts costs_of(const WalkedLayout& layout) {
  NetworkCosts out = default_costs(layout.bits_per_second, microseconds(50));
  out.inside.latency = std::chrono::nanoseconds(200);
  out.inside.per_message = std::chrono::nanoseconds(300);
  out.inside.copied_per_second = 10e9;
  out.inside.bytes_per_second = 40e9;
  return out;
}

double simulated_seconds(const Walkable& one, const WalkedLayout& layout, FlowControl flow,
                         Plan& plan) {
  SimRanksOptions options;
  options.hosts = hosts_of(layout.size, layout.per_host);
  options.network.costs = costs_of(layout);
  options.algorithm = one.algorithm;
  if (flow == FlowControl::kNone) options.early_segments = 1 << 20;
  SimRanks ranks(options);
  SimOp op(one.kind, layout.size, one.count);
  const Duration time = ranks.time_of([&](int rank) { return op.request(rank); });
  EXPECT_EQ(op.problem(), "");
  Planner planner({0, layout.size, one.algorithm, false, options.segment_bytes});
  planner.set_topology(topology_of(layout));
  plan = planner.plan(op.request(0)).value();
  return seconds(time);
}

double walked_seconds(const Walkable& one, const WalkedLayout& layout, FlowControl flow,
                      const Plan& plan) {
  SimulationRequest request;
  request.algorithm = plan.algorithm;
  request.kind = one.kind;
  request.shape.size = layout.size;
  request.shape.root = SimOp(one.kind, layout.size, 0).request(0).root;
  request.shape.count = one.count;
  request.segment_count = plan.segment_count;
  request.topology = topology_of(layout);
  request.costs = costs_of(layout);
  request.stages = false;  // the memory of the simulated network is not shared
  if (flow == FlowControl::kNone) request.window = 1 << 20;
  return seconds(simulate(request).value().time);
}

void compare(const WalkedLayout& layout, FlowControl flow, double tolerance) {
  for (const Walkable& one : kWalkable) {
    Plan plan;
    const double simulated = simulated_seconds(one, layout, flow, plan);
    const double walked = walked_seconds(one, layout, flow, plan);
    EXPECT_NEAR(walked / simulated, 1, tolerance)
        << one.algorithm << " " << collective_name(one.kind) << " x " << one.count << ", "
        << layout.size << " ranks, " << layout.per_host << " a host, "
        << layout.bits_per_second / 1e9 << " Gb/s: simulated " << simulated * 1e6 << " us, walked "
        << walked * 1e6 << " us";
  }
}

TEST(Simulation, HasTheEnginesWindow) { EXPECT_EQ(SimulationRequest().window, EdgeWindow::kMost); }

class SimulationAndEngine : public testing::TestWithParam<WalkedLayout> {};

// The times agree within 1.5 %. Rings of little data are the exception, because there the order of
// messages at each core matters.
TEST_P(SimulationAndEngine, TakeTheSameTime) { compare(GetParam(), FlowControl::kNone, 0.07); }

TEST_P(SimulationAndEngine, DifferByFlowControl) {
  compare(GetParam(), FlowControl::kAsEver, 0.15);
}

#ifdef RINGDIST_SANITIZED
constexpr WalkedLayout kLayouts[] = {{2, 1, 1e9}, {6, 2, 10e9}};
#else
constexpr WalkedLayout kLayouts[] = {{2, 1, 1e9},   {2, 2, 1e9},   {2, 1, 10e9}, {5, 3, 1e9},
                                     {10, 4, 10e9}, {3, 2, 1e9},   {8, 4, 10e9}, {8, 8, 1e9},
                                     {20, 4, 1e9},  {20, 1, 10e9}, {64, 4, 1e9}};
#endif

INSTANTIATE_TEST_SUITE_P(
    Layouts, SimulationAndEngine, testing::ValuesIn(kLayouts), [](const auto& info) {
      return std::to_string(info.param.size) + "_by_" + std::to_string(info.param.per_host) +
             "_at_" + std::to_string(static_cast<int>(info.param.bits_per_second / 1e9));
    });

}  // namespace
}  // namespace ringdist
