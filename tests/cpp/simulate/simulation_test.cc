// Simulations: costs that can be computed by hand, few ranks that represent all, and thousands of
// ranks.
#include "simulate/simulation.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "plan/plan.h"
#include "support/topologies.h"

namespace ringdist {
namespace {

using std::chrono::microseconds;

constexpr int64_t kSimulatedSegment = 252 * 1024;

// Returns a simulation over float32, with the segments that the planner chooses.
SimulationRequest simulation_of(const std::string& algorithm, Collective kind, int size,
                                int per_host, int64_t count) {
  PlanRequest wanted;
  wanted.kind = kind;
  wanted.reduce_op = ReduceOp::kSum;
  wanted.count = count;
  wanted.size = size;
  wanted.forced_algorithm = algorithm;
  wanted.segment_bytes = kSimulatedSegment;
  const Plan plan = make_plan(wanted).value();
  SimulationRequest out;
  out.algorithm = find_algorithm(algorithm);
  out.kind = kind;
  out.shape.size = size;
  out.shape.count = count;
  out.segment_count = plan.segment_count;
  out.topology = test::runs_of_ranks(size, per_host);
  out.costs = default_costs(1e9, microseconds(50));
  return out;
}

TEST(SimulationTest, ABroadcastToOneTakesAMessage) {
  SimulationRequest request = simulation_of("tree", Collective::kBroadcast, 2, 1, 1000);
  const LinkCosts& link = request.costs.between;
  const SimulationResult simulated = simulate(request).value();
  EXPECT_EQ(simulated.time, 2 * end_time(link, 4000) + link.latency + line_time(link, 4000));
  EXPECT_EQ(simulated.messages, 1);
  EXPECT_EQ(simulated.bytes_between, 4000);
  EXPECT_EQ(simulated.busiest_line, 4000);
}

TEST(SimulationTest, ARingIsBoundByItsLines) {
  constexpr int64_t kCount = int64_t{1} << 24;
  SimulationRequest request = simulation_of("ring", Collective::kAllreduce, 16, 4, kCount);
  const SimulationResult simulated = simulate(request).value();
  const double line = 2.0 * 15 / 16 * kCount * 4 / request.costs.between.bytes_per_second;
  EXPECT_GT(seconds(simulated.time), line);
  EXPECT_LT(seconds(simulated.time), 1.03 * line);
  EXPECT_EQ(simulated.ranks, 4);
  EXPECT_EQ(simulated.busiest_line, kCount * 4 * 2 / 16 * 15);
  EXPECT_EQ(simulated.bytes_between, 4 * simulated.busiest_line);
  EXPECT_EQ(simulated.bytes_inside, 3 * simulated.bytes_between);
}

TEST(SimulationTest, OneRankNeedsNothing) {
  const SimulationResult simulated =
      simulate(simulation_of("ring", Collective::kAllreduce, 1, 1, 100)).value();
  EXPECT_EQ(simulated.time, Duration(0));
  EXPECT_EQ(simulated.messages, 0);
}

TEST(SimulationTest, EverySchedulesEnds) {
  for (const Algorithm& algorithm : algorithms())
    for (const Collective kind : algorithm.collectives())
      for (const int size : {1, 2, 3, 5, 8, 13})
        for (const int64_t count : {0, 7, 400000}) {
          SimulationRequest request =
              simulation_of(std::string(algorithm.name), kind, size, 2, count);
          const SimulationResult simulated = simulate(request).value();
          EXPECT_EQ(simulated.time > Duration(0), size > 1)
              << algorithm.name << " " << collective_name(kind) << " of " << size;
        }
}

// A few ranks that represent all must give the same time as all ranks.
TEST(SimulationTest, RanksThatAreAlikeStandForAll) {
  for (const Algorithm& algorithm : algorithms())
    for (const Collective kind : algorithm.collectives())
      for (const auto& [size, per_host] : {std::pair(8, 2), {12, 4}, {16, 1}, {24, 8}})
        for (const int64_t count : {48, 48000, 480003}) {
          SimulationRequest request =
              simulation_of(std::string(algorithm.name), kind, size, per_host, count);
          const SimulationResult few = simulate(request).value();
          request.every_rank = true;
          const SimulationResult all = simulate(request).value();
          const std::string what =
              std::string(algorithm.name) + " " + std::string(collective_name(kind)) + " of " +
              std::to_string(size) + " by " + std::to_string(per_host) + " x " +
              std::to_string(count) + ", walked " + std::to_string(few.ranks);
          EXPECT_EQ(all.ranks, size);
          EXPECT_EQ(few.messages, all.messages) << what;
          EXPECT_NEAR(seconds(few.time) / seconds(all.time), 1, 0.02) << what;
        }
}

// Ranks are distributed over hosts, and there are too many to simulate all. One rank represents
// all ranks, including those of its host, with which it shares a line.
TEST(SimulationTest, RanksThatAreNotWalkedUseTheLinesAsWell) {
  constexpr int kSize = 4096;
  SimulationRequest request =
      simulation_of("ring", Collective::kAllreduce, kSize, 8, int64_t{1} << 24);
  const SimulationResult together = simulate(request).value();
  std::vector<std::vector<int>> dealt(kSize / 8);
  for (int rank = 0; rank < kSize; ++rank)
    dealt[static_cast<size_t>(rank) % dealt.size()].push_back(rank);
  request.topology = Topology::from_hosts(dealt, kSize);
  const SimulationResult apart = simulate(request).value();
  EXPECT_EQ(apart.ranks, 1);
  EXPECT_EQ(apart.messages, together.messages);
  EXPECT_EQ(apart.bytes_between, 8 * together.bytes_between);
  EXPECT_EQ(apart.busiest_line, 8 * together.busiest_line);
  const double line =
      static_cast<double>(apart.busiest_line) / request.costs.between.bytes_per_second;
  EXPECT_GT(seconds(apart.time), line);
}

TEST(SimulationTest, ManyThousandSteps) {
  const SimulationResult ring =
      simulate(simulation_of("ring", Collective::kAllreduce, 4096, 8, 25'000'000)).value();
  EXPECT_EQ(ring.ranks, 8);
  EXPECT_EQ(ring.messages, int64_t{4096} * 8190);
#ifndef RINGDIST_SANITIZED
  for (const auto& [algorithm, kind, count] :
       {std::tuple("direct", Collective::kAlltoall, 256),
        std::tuple("direct", Collective::kAllreduce, 1'000'000),
        std::tuple("ring", Collective::kReduceScatter, 6000),
        std::tuple("ring", Collective::kAllgather, 6000),
        std::tuple("tree", Collective::kBroadcast, 1'000'000),
        std::tuple("recursive_doubling", Collective::kAllreduce, 1000),
        std::tuple("dissemination", Collective::kBarrier, 0)}) {
    const auto one = Clock::now();
    const SimulationResult simulated =
        simulate(simulation_of(algorithm, kind, 4096, 8, count)).value();
    EXPECT_GT(simulated.time, Duration(0));
    RecordProperty(std::string(algorithm) + "_" + std::string(collective_name(kind)) + "_ms",
                   static_cast<int>(seconds(Clock::now() - one) * 1000));
  }
#endif
}

// For long messages, joining several segments to one changes the time little.
TEST(SimulationTest, SegmentsAreJoinedWhereThereAreTooMany) {
  for (const auto& [algorithm, kind] : {std::pair("ring", Collective::kAllreduce),
                                        {"recursive_doubling", Collective::kAllreduce},
                                        {"one_shot", Collective::kAllreduce},
                                        {"hierarchical", Collective::kAllreduce},
                                        {"tree", Collective::kBroadcast}}) {
    SimulationRequest request = simulation_of(algorithm, kind, 8, 4, int64_t{1} << 24);
    const SimulationResult all = simulate(request).value();
    EXPECT_EQ(all.joined, 1);
    request.most_messages = all.messages / 4;
    const SimulationResult few = simulate(request).value();
    EXPECT_GT(few.joined, 1) << algorithm;
    EXPECT_EQ(few.messages, all.messages) << algorithm;
    EXPECT_EQ(few.bytes_between, all.bytes_between) << algorithm;
    EXPECT_NEAR(seconds(few.time) / seconds(all.time), 1, 0.1) << algorithm;
    request.most_messages = 1;  // no range is longer than the whole
    EXPECT_GT(simulate(request).value().time, Duration(0)) << algorithm;
  }
}

TEST(SimulationTest, WhatIsTooMuchIsRefused) {
  SimulationRequest request = simulation_of("ring", Collective::kAllreduce, 4096, 8, 1000);
  request.every_rank = true;
  const auto simulated = simulate(request);
  ASSERT_FALSE(simulated.ok());
  EXPECT_EQ(simulated.error().kind(), ErrorKind::kNotSupported);
}

}  // namespace
}  // namespace ringdist
