// The engine over a simulated network: every collective with every algorithm that has it, up to
// 256 ranks in one thread. Also tests times that can be computed by hand, and faults.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <tuple>

#include "codec/codec_map.h"
#include "support/sim_op.h"
#include "support/sim_ranks.h"

namespace ringdist {
namespace {

using std::chrono::microseconds;

SimRanksOptions simulated(int size, int per_host, const std::string& algorithm = "") {
  SimRanksOptions out;
  out.hosts = hosts_of(size, per_host);
  out.network.costs = default_costs(1e9, microseconds(50));
  out.algorithm = algorithm;
  return out;
}

Duration simulate(const SimRanksOptions& options, Collective kind, int64_t count) {
  SimRanks ranks(options);
  SimOp op(kind, ranks.size(), count);
  const Duration time = ranks.time_of([&](int rank) { return op.request(rank); });
  EXPECT_EQ(op.problem(), "");
  return time;
}

TEST(Simulated, EveryCollectiveByEveryAlgorithm) {
  for (const Algorithm& algorithm : algorithms())
    for (const Collective kind : algorithm.collectives())
      for (const auto& [size, per_host] : {std::pair(2, 1), {3, 2}, {8, 4}, {13, 5}})
        for (const int64_t count : {0, 5, 3001}) {
          SCOPED_TRACE(std::string(algorithm.name) + " " + std::string(collective_name(kind)) +
                       " of " + std::to_string(size) + " x " + std::to_string(count));
          SimRanksOptions options = simulated(size, per_host, std::string(algorithm.name));
          options.segment_bytes = 2048;  // several per range
          options.network.jitter = microseconds(30);
          simulate(options, kind, count);
        }
}

// A ring has 2 (size - 1) rounds, each of which sends one shard over the line of every host.
TEST(Simulated, ARingTakesWhatItsLinesTake) {
  constexpr int kSize = 4;
  constexpr int64_t kCount = int64_t{1} << 22;
  SimRanksOptions options = simulated(kSize, 1, "ring");
  options.network.costs.between.framing = 0;
  const double line = 2.0 * (kSize - 1) / kSize * kCount * sizeof(float) /
                      options.network.costs.between.bytes_per_second;
  const double time = seconds(simulate(options, Collective::kAllreduce, kCount));
  EXPECT_GT(time, line);
  EXPECT_LT(time, 1.03 * line);
}

// Two ranks of a host share its line as if they were one.
TEST(Simulated, AHierarchyTakesWhatTheLinesOfTwoHostsTake) {
  constexpr int64_t kCount = int64_t{1} << 21;
  const auto time = [](const std::string& algorithm, Collective kind) {
    SimRanksOptions options = simulated(4, 2, algorithm);
    options.network.costs.between.framing = 0;
    const bool parts = kind == Collective::kAllgather || kind == Collective::kReduceScatter;
    return seconds(simulate(options, kind, parts ? kCount / 4 : kCount));
  };
  const double line = kCount * sizeof(float) / (1e9 / 8);
  for (const auto& [kind, lines] : {std::pair(Collective::kAllreduce, 1.0),
                                    {Collective::kAllgather, 0.5},
                                    {Collective::kReduceScatter, 0.5},
                                    {Collective::kBroadcast, 1.0}}) {
    const double taken = time("hierarchical", kind);
    EXPECT_GT(taken, lines * line) << collective_name(kind);
    EXPECT_LT(taken, 1.06 * lines * line) << collective_name(kind);
  }
  EXPECT_GT(time("ring", Collective::kAllreduce), 1.4 * line);
}

TEST(Simulated, TheSameSeedTakesTheSameTime) {
  const auto run = [](uint64_t seed) {
    SimRanksOptions options = simulated(8, 2);
    options.network.jitter = microseconds(100);
    options.network.seed = seed;
    return simulate(options, Collective::kAllreduce, 100000);
  };
  EXPECT_EQ(run(5), run(5));
  EXPECT_NE(run(5), run(6));
}

// Several ops run in the same group, so that credit, grants and numbers continue.
TEST(Simulated, AGroupServesManyOps) {
  SimRanks ranks(simulated(5, 2));
  for (const Collective kind : {Collective::kAllreduce, Collective::kBarrier,
                                Collective::kBroadcast, Collective::kAlltoall})
    for (const int64_t count : {10, 200000}) {
      SimOp op(kind, ranks.size(), count);
      ranks.time_of([&](int rank) { return op.request(rank); });
      EXPECT_EQ(op.problem(), "");
    }
}

#ifdef RINGDIST_SANITIZED
constexpr int kManyRanks = 32;
#else
constexpr int kManyRanks = 256;
#endif

class SimulatedMany : public testing::TestWithParam<Collective> {};

TEST_P(SimulatedMany, RanksInOneThread) {
  const Duration time = simulate(simulated(kManyRanks, 8), GetParam(), 512);
  RecordProperty("virtual_us", static_cast<int>(seconds(time) * 1e6));
}

INSTANTIATE_TEST_SUITE_P(Collectives, SimulatedMany,
                         testing::Values(Collective::kAllreduce, Collective::kAllgather,
                                         Collective::kReduceScatter, Collective::kBroadcast,
                                         Collective::kAlltoall, Collective::kBarrier),
                         [](const auto& info) { return std::string(collective_name(info.param)); });

TEST(Simulated, ARingOfManyRanks) {
  simulate(simulated(kManyRanks, 8, "ring"), Collective::kAllreduce, int64_t{kManyRanks} * 256);
}

// Fewer bytes take less time on the line, and all ranks end with the same bits.
TEST(Simulated, CompressedAllreduces) {
  constexpr int kSize = 6;
  constexpr int64_t kCount = 300000;
  const auto run = [](const char* codec) {
    SimRanks ranks(simulated(kSize, 2, "direct"));
    SimOp op(Collective::kAllreduce, kSize, kCount);
    auto blocks = std::make_shared<CodecMap>();
    blocks->parts.push_back({0, kCount, parse_codec_pair(codec, kSize).value(), nullptr});
    const Duration time = ranks.time_of([&](int rank) {
      OpRequest request = op.request(rank);
      request.codec_map = blocks;
      return request;
    });
    EXPECT_TRUE(op.outputs_equal()) << codec;
    return seconds(time);
  };
  const double plain =
      seconds(simulate(simulated(kSize, 2, "direct"), Collective::kAllreduce, kCount));
  EXPECT_NEAR(run("int8") / plain, 0.25, 0.03);
  EXPECT_NEAR(run("int4>int8") / plain, 0.19, 0.03);
}

TEST(Simulated, ADeadRankIsNamedOnEveryOther) {
  SimRanks ranks(simulated(8, 2, "ring"));
  SimOp op(Collective::kAllreduce, ranks.size(), int64_t{1} << 22);
  ranks.call([&](int rank) { return op.request(rank); });
  ranks.run(Milliseconds(20));
  ranks.kill(3);
  ranks.run();
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (rank == 3) continue;
    const SimRanks::Outcome& outcome = ranks.outcome(rank);
    ASSERT_TRUE(outcome.ended) << rank;
    ASSERT_TRUE(outcome.error) << rank;
    EXPECT_EQ(outcome.error.ranks(), std::vector<int>{3}) << outcome.error.what();
    EXPECT_LT(outcome.time, std::chrono::seconds(1)) << rank;
  }
}

// A host dies at any time of a hierarchical op. Ranks that lack its data name one of its ranks;
// the others finish with the right result.
TEST(Simulated, ADeadHostIsNamedWhereverTheOpIs) {
  for (const Algorithm& algorithm : algorithms()) {
    if (!algorithm.hierarchical) continue;
    for (const Collective kind : algorithm.collectives()) {
      int named = 0;
      for (const int milliseconds : {1, 3, 9, 27}) {
        SCOPED_TRACE(std::string(algorithm.name) + " " + std::string(collective_name(kind)) +
                     " after " + std::to_string(milliseconds) + " ms");
        SimRanks ranks(simulated(6, 2, std::string(algorithm.name)));
        SimOp op(kind, ranks.size(), int64_t{1} << 18);
        ranks.call([&](int rank) { return op.request(rank); });
        ranks.run(Milliseconds(milliseconds));
        ranks.kill(2);
        ranks.kill(3);
        ranks.run();
        for (const int rank : {0, 1, 4, 5}) {
          const SimRanks::Outcome& outcome = ranks.outcome(rank);
          ASSERT_TRUE(outcome.ended) << "rank " << rank << ranks.dump(rank);
          if (!outcome.error) continue;
          ++named;
          ASSERT_FALSE(outcome.error.ranks().empty()) << outcome.error.what();
          for (const int culprit : outcome.error.ranks())
            EXPECT_TRUE(culprit == 2 || culprit == 3) << outcome.error.what();
          EXPECT_LT(outcome.time, std::chrono::seconds(1)) << "rank " << rank;
        }
      }
      // A rank that receives only from other hosts finishes. In a broadcast, these may be all
      // ranks.
      if (kind != Collective::kBroadcast) {
        EXPECT_GT(named, 0) << algorithm.name << " " << collective_name(kind);
      }
    }
  }
}

// A stopped rank or a cut link that recovers within the timeout only delays the op.
TEST(Simulated, WhatStopsForAWhileOnlyTakesLonger) {
  SimRanks ranks(simulated(4, 1, "ring"));
  SimOp op(Collective::kAllreduce, ranks.size(), 1000000);
  ranks.call([&](int rank) { return op.request(rank); });
  ranks.run(Milliseconds(5));
  ranks.network().stop(2);
  ranks.network().cut(3, 0);
  ranks.run(std::chrono::seconds(3));
  EXPECT_FALSE(ranks.outcome(0).ended);
  ranks.network().heal(3, 0);
  ranks.network().resume(2);
  ranks.run();
  for (int rank = 0; rank < ranks.size(); ++rank) {
    EXPECT_TRUE(ranks.outcome(rank).ended) << rank;
    EXPECT_FALSE(ranks.outcome(rank).error) << ranks.outcome(rank).error.what();
  }
  EXPECT_EQ(op.problem(), "");
}

TEST(Simulated, AStoppedRankIsNamedAtTheTimeout) {
  SimRanksOptions options = simulated(4, 1, "ring");
  options.timeout = std::chrono::seconds(2);
  SimRanks ranks(options);
  ranks.network().stop(2 + 1);  // Context of rank 2
  SimOp op(Collective::kAllreduce, ranks.size(), 1000000);
  ranks.call([&](int rank) { return op.request(rank); });
  ranks.run();
  for (const int rank : {0, 1, 3}) {
    ASSERT_TRUE(ranks.outcome(rank).ended);
    EXPECT_EQ(ranks.outcome(rank).error.ranks(), std::vector<int>{2})
        << ranks.outcome(rank).error.what();
  }
}

}  // namespace
}  // namespace ringdist
