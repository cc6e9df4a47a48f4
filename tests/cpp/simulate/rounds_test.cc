// Rounds of schedules: small examples, and sums that hold for any schedule.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "simulate/plan_explanation.h"
#include "simulate/simulation.h"
#include "support/topologies.h"

namespace ringdist {
namespace {

Shape shape(int size, int64_t count, int root = 0) {
  Shape out;
  out.size = size;
  out.count = count;
  out.root = root;
  return out;
}

std::vector<Round> rounds(const char* algorithm, Collective kind, const Shape& shape, int per_host,
                          int shown = 16) {
  return rounds_of(*find_algorithm(algorithm), kind, shape,
                   test::runs_of_ranks(shape.size, per_host), shown)
      .value();
}

using Arrows = std::vector<std::pair<int, int>>;

Arrows arrows(const Round& round) {
  Arrows out;
  for (const RoundMessage& one : round.messages) out.emplace_back(one.from, one.to);
  return out;
}

TEST(Rounds, ATree) {
  const auto found = rounds("tree", Collective::kBroadcast, shape(8, 100), 4);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(arrows(found[0]), (Arrows{{0, 4}, {0, 2}, {0, 1}}));
  EXPECT_EQ(arrows(found[1]), (Arrows{{2, 3}, {4, 6}, {4, 5}}));
  EXPECT_EQ(arrows(found[2]), (Arrows{{6, 7}}));
  EXPECT_EQ(found[0].messages[0].edge_kind, EdgeKind::kResult);
  EXPECT_EQ(found[1].messages[0].edge_kind, EdgeKind::kRelay);
  EXPECT_EQ(found[0].messages_between, 1);
  EXPECT_EQ(found[0].messages_inside, 2);
  EXPECT_EQ(found[0].elements_inside, 200);
}

// Long parts between hosts take turns: in round k, each rank sends to the rank k + 1 after it.
TEST(Rounds, AnAlltoallInTurns) {
  const auto found = rounds("direct", Collective::kAlltoall, shape(4, 1 << 16), 1);
  ASSERT_EQ(found.size(), 3u);
  for (int turn = 0; turn < 3; ++turn) {
    Arrows wanted;
    for (int rank = 0; rank < 4; ++rank) wanted.emplace_back(rank, (rank + turn + 1) % 4);
    EXPECT_EQ(arrows(found[static_cast<size_t>(turn)]), wanted);
  }
  EXPECT_EQ(rounds("direct", Collective::kAlltoall, shape(4, 1000), 1).size(), 1u);
}

TEST(Rounds, ARingTakesItsSteps) {
  const auto found = rounds("ring", Collective::kAllreduce, shape(4, 8), 4);
  ASSERT_EQ(found.size(), 6u);
  for (size_t round = 0; round < found.size(); ++round) {
    EXPECT_EQ(arrows(found[round]), (Arrows{{0, 1}, {1, 2}, {2, 3}, {3, 0}})) << round;
    EXPECT_EQ(found[round].messages[0].count, 2);
  }
}

TEST(Rounds, DirectAnswersInTheSecond) {
  const auto found = rounds("direct", Collective::kAllreduce, shape(3, 3), 3);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].messages.size(), 6u);
  EXPECT_EQ(found[0].messages[0].edge_kind, EdgeKind::kContribution);
  EXPECT_EQ(found[1].messages[0].edge_kind, EdgeKind::kResult);
}

TEST(Rounds, OneRankSendsNothing) {
  EXPECT_TRUE(rounds("ring", Collective::kAllreduce, shape(1, 8), 1).empty());
}

// Rounds must contain all messages, whether all ranks are simulated or some represent the others.
TEST(Rounds, HoldTheSimulatedMessages) {
  for (const Algorithm& algorithm : algorithms())
    for (const Collective kind : algorithm.collectives())
      for (const auto& [size, per_host] : {std::pair(2, 1), {6, 2}, {7, 3}, {24, 8}}) {
        const std::string what = std::string(algorithm.name) + " " +
                                 std::string(collective_name(kind)) + " of " + std::to_string(size);
        const Topology topology = test::runs_of_ranks(size, per_host);
        SimulationRequest request;
        request.algorithm = &algorithm;
        request.kind = kind;
        request.shape = shape(size, 4800);
        request.segment_count = 1 << 20;
        request.topology = topology;
        request.costs = default_costs(1e9, std::chrono::microseconds(50));
        const SimulationResult simulated = simulate(request).value();
        for (const int shown : {0, 64}) {
          const auto found = rounds_of(algorithm, kind, shape(size, 4800), topology, shown).value();
          Round sum;
          for (const Round& round : found) {
            EXPECT_EQ(round.messages.empty(), shown == 0) << what;
            EXPECT_GT(round.messages_inside + round.messages_between, 0) << what;
            sum.messages_inside += round.messages_inside;
            sum.messages_between += round.messages_between;
            sum.elements_inside += round.elements_inside;
            sum.elements_between += round.elements_between;
          }
          EXPECT_EQ(sum.messages_inside + sum.messages_between, simulated.messages) << what;
          EXPECT_EQ(4 * sum.elements_inside, simulated.bytes_inside) << what;
          EXPECT_EQ(4 * sum.elements_between, simulated.bytes_between) << what;
        }
      }
}

TEST(Rounds, ThousandsOfRanksByThoseOfAHost) {
  const auto found = rounds("ring", Collective::kAllreduce, shape(4096, 1 << 20), 8);
  ASSERT_EQ(found.size(), 2u * 4095);
  EXPECT_EQ(found[0].messages_inside, 4096 / 8 * 7);
  EXPECT_EQ(found[0].messages_between, 4096 / 8);
}

TEST(Rounds, WhatIsTooMuchIsRefused) {
  std::vector<std::vector<int>> hosts{{0}};
  for (int rank = 1; rank < 4096; ++rank) hosts[0].push_back(rank);
  hosts[0].pop_back();
  hosts.push_back({4095});
  const auto found = rounds_of(*find_algorithm("ring"), Collective::kAllreduce, shape(4096, 4096),
                               Topology::from_hosts(hosts, 4096), 8);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().kind(), ErrorKind::kNotSupported);
}

}  // namespace
}  // namespace ringdist
