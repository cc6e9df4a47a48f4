// Schedules of groups that span several hosts: traffic between hosts and inside them.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "algorithm/cost.h"
#include "algorithm/schedule.h"
#include "support/symbolic.h"

namespace ringdist {
namespace {

constexpr uint64_t kTurnSeed = 20251124;

// Returns the number of elements that leave `host` in a group with the given shape.
int64_t sent_between(const Algorithm& algorithm, Collective kind, Shape shape, int host) {
  int64_t out = 0;
  for (shape.rank = 0; shape.rank < shape.size; ++shape.rank)
    for (const Step& step : algorithm.build(kind, shape).steps)
      for (const int to : step.to)
        if (shape.topology.host_of[shape.rank] == host && shape.topology.host_of[to] != host)
          out += step.range.count;
  return out;
}

// The traffic must equal that of a ring or chain of hosts, however many ranks a host has.
TEST(BetweenHosts, HierarchicalTakesEachLineAsOftenAsOneRankAHost) {
  const Algorithm& algorithm = *find_algorithm("hierarchical");
  for (const auto& hosts : {std::vector<std::vector<int>>{{0, 1}, {2, 3}, {4, 5}},
                            {{0}, {1, 2}, {3, 4, 5}},
                            {{0, 3}, {1, 4}, {2, 5}}}) {
    Shape shape{0, 6, 1, 1800};
    shape.topology = Topology::from_hosts(hosts, 6);
    for (int host = 0; host < 3; ++host) {
      const auto elements = [&](Collective kind) {
        return sent_between(algorithm, kind, shape, host);
      };
      const auto here = [&](int at) {
        return static_cast<int64_t>(shape.topology.hosts[(host + at) % 3].size());
      };
      EXPECT_EQ(elements(Collective::kAllreduce), 2 * 2 * 600);
      EXPECT_EQ(elements(Collective::kAllgather), 1800 * (6 - here(1)));
      EXPECT_EQ(elements(Collective::kReduceScatter), 1800 * (6 - here(0)));
      const bool last = (host + 1) % 3 == shape.topology.host_of[1];
      EXPECT_EQ(elements(Collective::kBroadcast), last ? 0 : 1800);
      EXPECT_EQ(elements(Collective::kReduce), host == shape.topology.host_of[1] ? 0 : 1800);
    }
  }
}

// Each run of consecutive ranks of a host gives one message, and every part is sent once.
TEST(BetweenHosts, TheRootOfAGatherByHostsHasAMessageForEach) {
  const Algorithm& algorithm = *find_algorithm("hierarchical_direct");
  for (const auto& [hosts, messages] :
       {std::pair{std::vector<std::vector<int>>{{0, 1}, {2, 3}, {4, 5}}, 3},
        {std::vector<std::vector<int>>{{0}, {1, 2}, {3, 4, 5}}, 3},
        {std::vector<std::vector<int>>{{0, 3, 4}, {1, 5}, {2}}, 4}}) {
    Shape shape{1, 6, 1, 100};
    shape.topology = Topology::from_hosts(hosts, 6);
    int received = 0;
    int64_t elements = 0;
    for (const Step& step : algorithm.build(Collective::kGather, shape).steps) {
      if (step.kind != StepKind::kRecv) continue;
      ++received;
      elements += step.range.count;
    }
    int sends = 0;
    for (const Step& step : algorithm.build(Collective::kScatter, shape).steps)
      sends += static_cast<int>(step.to.size());
    EXPECT_EQ(elements, 500);
    EXPECT_EQ(sends, received);
    EXPECT_EQ(received, messages);
  }
}

// Contributions that stay inside a host are marked kIntraHost, and no others are. If all ranks
// share one host, none is marked, because the codec that was requested applies there.
TEST(Marks, SayWhatStaysInsideAHost) {
  for (const auto& hosts :
       {std::vector<std::vector<int>>{{0, 3}, {1, 4, 5}, {2}}, {{0, 1, 2, 3, 4, 5}}}) {
    for (const Algorithm& algorithm : algorithms()) {
      if (!algorithm.hierarchical) continue;
      for (const Collective kind : algorithm.collectives()) {
        Shape shape{0, 6, 1, 1800};
        shape.topology = Topology::from_hosts(hosts, 6);
        for (shape.rank = 0; shape.rank < shape.size; ++shape.rank)
          for (const Step& step : algorithm.build(kind, shape).steps) {
            if (step.kind != StepKind::kSend || step.edge_kind == EdgeKind::kResult) continue;
            ASSERT_EQ(step.to.size(), 1u);
            const auto& host_of = shape.topology.host_of;
            const bool same_host = host_of[shape.rank] == host_of[step.to[0]];
            EXPECT_EQ(step.edge_kind == EdgeKind::kIntraHost, same_host && hosts.size() > 1)
                << algorithm.name << " " << collective_name(kind) << ", rank " << shape.rank;
          }
      }
    }
  }
}

// Long parts between hosts take turns; short parts and parts inside a host do not. The schedules
// must also finish on channels that hold one message.
TEST(Turns, OfAnAlltoallAreTakenBetweenHosts) {
  const Algorithm& direct = *find_algorithm("direct");
  for (const auto& hosts : std::vector<std::vector<std::vector<int>>>{
           {{0}, {1}, {2}, {3}}, {{0, 1}, {2, 3}}, {{0, 2}, {1}, {3}}, {{0, 3, 1}, {2}}, {}}) {
    for (const int64_t count : {int64_t{1000}, kTurnCount}) {
      const symbolic::Case what{Collective::kAlltoall, 4, count, 0, false, {}, hosts};
      const auto schedules = symbolic::build_all(direct, what);
      int turns = 0;
      for (int rank = 0; rank < what.size; ++rank) {
        const auto& host_of = symbolic::shape_of(what, rank).topology.host_of;
        for (const Step& step : schedules[rank].steps) {
          if (step.follows.empty()) continue;
          ++turns;
          EXPECT_NE(host_of[rank], host_of[step.to[0]]);
          for (const int before : step.follows) {
            const Step& other = schedules[rank].steps[before];
            const int peer = other.kind == StepKind::kSend ? other.to[0] : other.from;
            EXPECT_NE(host_of[rank], host_of[peer]);
            // A step may follow its own send of the previous turn, but only receives of earlier
            // turns. So one late rank does not delay all others.
            if (hosts.size() == 4 && other.kind != StepKind::kSend) {
              const auto turn = [&](int to, int from) {
                return (to - from + what.size) % what.size;
              };
              EXPECT_LE(turn(rank, peer), turn(step.to[0], rank) - 2);
            }
          }
        }
      }
      const bool taken = hosts.size() > 1 && count > 1000;
      EXPECT_EQ(turns > 0, taken) << hosts.size() << " hosts, " << count;
      if (!taken) continue;
      if (hosts.size() == 4) {
        EXPECT_EQ(turns, 4 * 2);
      }
      const auto segments = symbolic::cut(schedules, 1 << 13);
      ASSERT_EQ(symbolic::structural_problem(what, segments), "");
      ASSERT_EQ(symbolic::Checker(what, segments).run_in_random_order(kTurnSeed), "");
    }
  }
}

}  // namespace
}  // namespace ringdist
