#include "plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace ringdist {
namespace {

constexpr int64_t kSegment = 258048;  // 252 KiB

PlanRequest request(Collective kind, DType dtype = DType::kFloat32, int64_t count = 1000) {
  PlanRequest out;
  out.kind = kind;
  out.dtype = dtype;
  out.reduce_op = ReduceOp::kSum;
  out.count = count;
  out.size = 4;
  out.segment_bytes = kSegment;
  return out;
}

PlanRequest apart(PlanRequest wanted) {
  wanted.topology = Topology::from_hosts({{0}, {1}, {2}, {3}}, 4);
  return wanted;
}

std::string_view chosen(const PlanRequest& wanted) {
  Result<Plan> plan = make_plan(wanted);
  return plan.ok() ? plan.value().algorithm->name : "error";
}

std::string rejection(const PlanRequest& wanted) {
  Result<Plan> plan = make_plan(wanted);
  if (plan.ok()) return "";
  EXPECT_EQ(plan.error().kind(), ErrorKind::kInvalidArgument);
  return plan.error().message();
}

int64_t segment(const PlanRequest& wanted) { return make_plan(wanted).value().segment_count; }

TEST(Plan, Defaults) {
  EXPECT_EQ(chosen(request(Collective::kBarrier, DType::kBytes, 0)), "dissemination");
  EXPECT_EQ(chosen(request(Collective::kBroadcast)), "direct");
  EXPECT_EQ(chosen(request(Collective::kAllgather, DType::kFloat32, 1 << 20)), "direct");
  EXPECT_EQ(chosen(request(Collective::kAllreduce, DType::kFloat32, 1 << 20)), "ring");
  EXPECT_EQ(chosen(request(Collective::kReduceScatter, DType::kFloat32, 1 << 20)), "ring");
  EXPECT_EQ(chosen(request(Collective::kReduce, DType::kFloat32, 1 << 20)), "ring");
  EXPECT_EQ(chosen(request(Collective::kGather)), "direct");
  EXPECT_EQ(chosen(request(Collective::kScatter)), "direct");
  EXPECT_EQ(chosen(request(Collective::kAlltoall)), "direct");
}

TEST(Plan, HierarchicalBetweenHosts) {
  const Topology pairs = Topology::from_hosts({{0, 1}, {2, 3}}, 4);
  for (const Collective kind : {Collective::kAllreduce, Collective::kAllgather,
                                Collective::kReduceScatter, Collective::kBroadcast}) {
    PlanRequest wanted = request(kind, DType::kFloat32, 1 << 20);
    EXPECT_NE(chosen(wanted), "hierarchical");
    wanted.topology = Topology::one_host(4);
    EXPECT_NE(chosen(wanted), "hierarchical");
    wanted.topology = pairs;
    EXPECT_EQ(chosen(wanted), "hierarchical");
  }
  PlanRequest wanted = request(Collective::kAllreduce, DType::kFloat32, 1 << 20);
  wanted.topology = pairs;
  EXPECT_EQ(segment(wanted), 52480) << "a quarter of it, in five";
  wanted.count = 1 << 16;  // with 64 KiB per rank, each line would carry twice as much
  EXPECT_EQ(chosen(wanted), "hierarchical");
  EXPECT_EQ(chosen(apart(wanted)), "direct");
  wanted.count = 1;  // latency dominates
  EXPECT_EQ(chosen(wanted), "recursive_doubling");
  wanted.count = 1 << 20;
  wanted.layout_deterministic = true;
  EXPECT_EQ(chosen(wanted), "direct");
  wanted.layout_deterministic = false;
  wanted.compression_loss = CompressionLoss::kElements;
  EXPECT_EQ(chosen(wanted), "hierarchical_direct");
}

// A chain needs one hop per host, and uses each line once.
TEST(Plan, AChainOfHostsForLongBroadcasts) {
  for (const int hosts : {2, 4, 64}) {
    std::vector<std::vector<int>> ranks;
    for (int host = 0; host < hosts; ++host) ranks.push_back({host});
    PlanRequest wanted = request(Collective::kBroadcast, DType::kFloat32, 1 << 24);
    wanted.size = hosts;
    wanted.topology = Topology::from_hosts(ranks, hosts);
    EXPECT_EQ(chosen(wanted), "hierarchical");
    wanted.count = 1;
    EXPECT_EQ(chosen(wanted), hosts == 2 ? "hierarchical" : hosts == 4 ? "direct" : "tree");
  }
}

// A rank should not send to all others here. Rank order has priority.
TEST(Plan, FewStepsForSmallAllreducesOfManyRanks) {
  PlanRequest wanted = request(Collective::kAllreduce, DType::kFloat32, 1);
  wanted.size = 17;
  EXPECT_EQ(chosen(wanted), "recursive_doubling");
  wanted.count = 1 << 18;
  EXPECT_EQ(chosen(wanted), "ring");
  wanted.count = 1;
  wanted.layout_deterministic = true;
  EXPECT_EQ(chosen(wanted), "direct");
  wanted.layout_deterministic = false;
  wanted.dtype = DType::kBFloat16;  // rounds once
  EXPECT_EQ(chosen(wanted), "direct");
  wanted.dtype = DType::kInt32;
  wanted.reduce_op = ReduceOp::kAvg;
  EXPECT_EQ(chosen(wanted), "direct");
  for (const Collective kind : {Collective::kAllgather, Collective::kReduceScatter}) {
    wanted = request(kind, DType::kFloat32, 1);
    wanted.size = 17;
    EXPECT_EQ(chosen(wanted), "ring");
  }
  wanted = request(Collective::kBroadcast);
  wanted.size = 17;
  EXPECT_EQ(chosen(wanted), "tree");
  wanted.size = 16;
  wanted.count = 1 << 20;
  EXPECT_EQ(chosen(wanted), "direct");
}

// The number of peers of a rank matters. By hosts, it has one peer per host.
TEST(Plan, ManyRanksOnFewHosts) {
  const auto on = [](int hosts, int each) {
    std::vector<std::vector<int>> out(static_cast<size_t>(hosts));
    for (int rank = 0; rank < hosts * each; ++rank)
      out[static_cast<size_t>(rank / each)].push_back(rank);
    return Topology::from_hosts(out, hosts * each);
  };
  PlanRequest wanted = request(Collective::kReduce, DType::kFloat32, 1 << 10);
  wanted.size = 64;
  wanted.topology = on(8, 8);
  EXPECT_EQ(chosen(wanted), "hierarchical_direct");
  wanted.kind = Collective::kAllreduce;
  wanted.count = 1 << 14;
  EXPECT_EQ(chosen(wanted), "hierarchical_direct");
  EXPECT_EQ(make_plan(wanted).value().why.find("of those that need few connections"), 0u);
  wanted.topology = on(32, 2);
  EXPECT_EQ(chosen(wanted), "recursive_doubling");
  // The leader of a host with one rank has all ranks of the other hosts as peers.
  std::vector<std::vector<int>> one_large{{}, {20}, {21}};
  for (int rank = 0; rank < 20; ++rank) one_large[0].push_back(rank);
  wanted.size = 22;
  wanted.topology = Topology::from_hosts(one_large, wanted.size);
  EXPECT_NE(chosen(wanted), "hierarchical_direct");
}

TEST(Plan, ForMoreThanATimeCanSay) {
  for (const Collective kind : {Collective::kAllgather, Collective::kAllreduce}) {
    PlanRequest wanted = request(kind, DType::kFloat32, int64_t{1} << 38);
    wanted.costs = default_costs(1e4, std::chrono::microseconds(30));
    EXPECT_NE(chosen(apart(wanted)), "error");
  }
}

// Codecs without loss add in the same order if the algorithm does.
TEST(Plan, FewStepsForSmallAllreduces) {
  PlanRequest wanted = request(Collective::kAllreduce, DType::kFloat32, 1024);
  EXPECT_EQ(chosen(wanted), "recursive_doubling");
  wanted.layout_deterministic = true;
  EXPECT_EQ(chosen(wanted), "one_shot");
  wanted.count = 1 << 16;
  EXPECT_EQ(chosen(wanted), "direct");
  wanted.layout_deterministic = false;
  EXPECT_EQ(chosen(wanted), "direct");
  wanted.count = 1 << 20;
  EXPECT_EQ(chosen(wanted), "ring");
  wanted = request(Collective::kAllreduce, DType::kInt32, 1000);
  wanted.reduce_op = ReduceOp::kAvg;
  EXPECT_EQ(chosen(wanted), "one_shot");
  wanted = request(Collective::kAllreduce, DType::kFloat32, 1 << 16);
  for (const auto& [coding, forced, algorithm] :
       {std::tuple{CompressionLoss::kNothing, "", "direct"},
        {CompressionLoss::kElements, "", "direct"},
        {CompressionLoss::kBlocks, "", "direct"},
        {CompressionLoss::kNothing, "one_shot", "direct"},
        {CompressionLoss::kNothing, "ring", "ring"}}) {
    wanted.compression_loss = coding;
    wanted.forced_algorithm = forced;
    EXPECT_EQ(chosen(wanted), algorithm);
  }
}

TEST(Plan, OneStepForSmallParts) {
  const auto of = [](Collective kind, int64_t count) {
    return request(kind, DType::kFloat32, count);
  };
  EXPECT_EQ(chosen(of(Collective::kReduceScatter, 1024)), "direct");
  EXPECT_EQ(chosen(of(Collective::kReduceScatter, 1 << 18)), "ring");
  EXPECT_EQ(chosen(of(Collective::kAllgather, 1024)), "direct");
  EXPECT_EQ(chosen(of(Collective::kAllgather, 1 << 18)), "direct");
  EXPECT_EQ(chosen(apart(of(Collective::kAllgather, 1024))), "direct");
  EXPECT_EQ(chosen(apart(of(Collective::kAllgather, 1 << 18))), "hierarchical");
}

TEST(Plan, DirectForShortReduces) {
  PlanRequest wanted = request(Collective::kReduce, DType::kFloat32, 4096);
  EXPECT_EQ(chosen(wanted), "direct");
  wanted.count = 1 << 18;
  EXPECT_EQ(chosen(wanted), "ring");
  wanted.layout_deterministic = true;
  EXPECT_EQ(chosen(wanted), "direct");
  wanted.forced_algorithm = "ring";
  EXPECT_NE(rejection(wanted).find("rank order"), std::string::npos);
  wanted = request(Collective::kReduce, DType::kFloat32, int64_t{1} << 40);
  wanted.size = 2;
  EXPECT_EQ(chosen(wanted), "direct");
  EXPECT_EQ(chosen(request(Collective::kReduce, DType::kFloat16, 32768)), "direct")
      << "64 KiB are rounded once";
  EXPECT_EQ(chosen(request(Collective::kReduce, DType::kFloat16, 1 << 18)), "ring");
}

// Inside a host, for any size, the sum is rounded once.
TEST(Plan, RankOrderForHalfSumsOfOneHostAndSmallOnes) {
  const auto ordered = [](const PlanRequest& wanted) {
    return make_plan(wanted).value().algorithm->rank_ordered;
  };
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const int64_t count : {1, 16384, 32768, 4 * 16384, 1 << 24}) {
      EXPECT_TRUE(ordered(request(Collective::kAllreduce, dtype, count))) << count;
      EXPECT_TRUE(ordered(request(Collective::kReduceScatter, dtype, count))) << count;
    }
    EXPECT_EQ(chosen(request(Collective::kAllreduce, dtype, 1 << 24)), "direct");
    EXPECT_TRUE(ordered(apart(request(Collective::kAllreduce, dtype, 32768))));
    EXPECT_TRUE(ordered(apart(request(Collective::kReduceScatter, dtype, 8192))));
    EXPECT_EQ(chosen(apart(request(Collective::kAllreduce, dtype, 1 << 24))), "hierarchical");
    EXPECT_EQ(chosen(apart(request(Collective::kReduceScatter, dtype, 1 << 22))), "hierarchical");
    PlanRequest many = request(Collective::kAllreduce, dtype, 1 << 24);
    many.size = 17;
    EXPECT_EQ(chosen(many), "ring");
    PlanRequest two = request(Collective::kReduceScatter, dtype, 32768);
    two.size = 2;
    EXPECT_TRUE(ordered(two));
    PlanRequest scaled = request(Collective::kAllreduce, dtype, 32768);
    scaled.reduce_op = ReduceOp::kPremulSum;
    EXPECT_TRUE(ordered(scaled));
    scaled.reduce_op = ReduceOp::kMax;  // rounds nothing
    scaled.count = 1 << 24;
    EXPECT_EQ(chosen(scaled), "ring");
  }
}

// A ring passes on partial sums in the dtype, which would overflow.
TEST(Plan, AveragesOfIntegersAreAddedUpByOneRank) {
  for (DType dtype : {DType::kInt8, DType::kUInt8, DType::kInt32, DType::kInt64, DType::kUInt64})
    for (Collective kind :
         {Collective::kAllreduce, Collective::kReduceScatter, Collective::kReduce}) {
      PlanRequest wanted = request(kind, dtype, 1 << 24);
      EXPECT_EQ(chosen(wanted), "ring");
      wanted.reduce_op = ReduceOp::kAvg;
      EXPECT_EQ(chosen(wanted), "direct");
      wanted.forced_algorithm = "ring";  // is replaced
      EXPECT_EQ(chosen(wanted), "direct");
      wanted.dtype = DType::kFloat32;
      EXPECT_EQ(chosen(wanted), "ring");
    }
  PlanRequest moved = request(Collective::kAllgather, DType::kInt8, 1 << 20);
  const std::string_view without = chosen(moved);
  moved.reduce_op = ReduceOp::kAvg;  // ignored for a collective that moves data only
  EXPECT_EQ(chosen(moved), without);
}

// Half precision is cast at every hop anyway, and a ring keeps every link busy. A codec with a
// loss per block encodes twice on "direct", however many ranks there are.
TEST(Plan, CodecsThatRoundElementsGoRound) {
  PlanRequest wanted = request(Collective::kAllreduce, DType::kFloat32, 1 << 20);
  for (const auto& [coding, algorithm] : {std::pair{CompressionLoss::kNothing, "ring"},
                                          {CompressionLoss::kElements, "ring"},
                                          {CompressionLoss::kBlocks, "direct"}}) {
    wanted.compression_loss = coding;
    EXPECT_EQ(chosen(wanted), algorithm);
  }
  wanted.count = 1000;
  wanted.compression_loss = CompressionLoss::kElements;
  EXPECT_EQ(chosen(wanted), "direct");
}

TEST(Plan, LayoutDeterminismWantsRankOrder) {
  PlanRequest wanted = request(Collective::kAllreduce, DType::kFloat32, 1 << 24);
  wanted.layout_deterministic = true;
  EXPECT_EQ(chosen(wanted), "direct");
  wanted.forced_algorithm = "direct";
  EXPECT_EQ(chosen(wanted), "direct");
  wanted.forced_algorithm = "ring";
  EXPECT_NE(rejection(wanted).find("'ring'"), std::string::npos);
  EXPECT_NE(rejection(wanted).find("deterministic='layout'"), std::string::npos);
  wanted.kind = Collective::kAllgather;  // reduces nothing
  EXPECT_EQ(chosen(wanted), "ring");
  wanted.kind = Collective::kAllreduce;
  wanted.forced_algorithm = "tree";  // has no allreduce
  EXPECT_EQ(chosen(wanted), "direct");
}

TEST(Plan, ForcedWhereItFits) {
  PlanRequest wanted = request(Collective::kAllreduce);
  wanted.forced_algorithm = "direct";
  EXPECT_EQ(chosen(wanted), "direct");
  wanted.kind = Collective::kBroadcast;
  EXPECT_EQ(chosen(wanted), "direct");
  wanted.forced_algorithm = "tree";
  EXPECT_EQ(chosen(wanted), "tree");
  wanted.forced_algorithm = "ring";
  EXPECT_EQ(chosen(wanted), "direct");
  wanted.forced_algorithm = "star";
  EXPECT_EQ(rejection(wanted), "unknown algorithm 'star'; have: " + algorithm_names());
}

TEST(Plan, SegmentsAreEvenAndFit) {
  // With 4 ranks, shards of 25,000,000 elements are 387.5 segments of 64512.
  PlanRequest wanted = request(Collective::kAllreduce, DType::kFloat32, 100'000'000);
  EXPECT_EQ(segment(wanted), 64512);
  wanted.count = 4 * 64513;  // one element more than a segment gives two halves
  EXPECT_EQ(segment(wanted), 32384);
  wanted.count = 4 * 64512;
  EXPECT_EQ(segment(wanted), 64512);
  wanted.count = 0;
  EXPECT_EQ(segment(wanted), 1);
  wanted.count = 1;
  EXPECT_EQ(segment(wanted), 128);
  wanted.forced_algorithm = "ring";
  wanted.segment_bytes = 100;  // 25 elements: no multiple of 128 fits
  wanted.count = 4 * 60;
  EXPECT_EQ(segment(wanted), 20);
  wanted.segment_bytes = 3;
  EXPECT_NE(rejection(wanted).find("3 bytes holds no element of float32"), std::string::npos);
}

// Values that differ between ranks must not influence the plan.
TEST(Plan, UnevenPartsArePlannedFromTheLimitAlone) {
  EXPECT_EQ(segment(request(Collective::kAlltoall, DType::kFloat32, 0)), 64512);
  EXPECT_EQ(segment(request(Collective::kAlltoall, DType::kFloat32, 70'000)), 64512);
  const std::vector<int64_t> parts{0, 70'000, 1, 0};
  for (Collective kind : {Collective::kAllgather, Collective::kReduceScatter}) {
    PlanRequest wanted = request(kind);
    wanted.parts = parts;
    EXPECT_EQ(segment(wanted), 64512);
  }
}

TEST(Plan, UnevenHalfSumsCountAllParts) {
  std::vector<int64_t> parts{32760, 0, 7, 1};
  PlanRequest wanted = request(Collective::kReduceScatter, DType::kFloat16, int64_t{1} << 40);
  wanted.parts = parts;
  wanted = apart(wanted);
  EXPECT_TRUE(make_plan(wanted).value().algorithm->rank_ordered) << "64 KiB";
  parts[1] = 1 << 24;
  EXPECT_EQ(chosen(wanted), "hierarchical");
}

// No range of any schedule has more segments than its bytes need.
TEST(Plan, SegmentsSuitEverySchedule) {
  for (const Algorithm& algorithm : algorithms()) {
    for (const Collective kind : algorithm.collectives()) {
      for (int size : {1, 2, 3, 8, 64}) {
        for (int64_t count : {int64_t{1}, int64_t{777}, int64_t{1'000'003}, int64_t{1} << 33}) {
          PlanRequest wanted = request(kind, DType::kFloat64, count);
          wanted.size = size;
          wanted.forced_algorithm = algorithm.name;
          const int64_t length = segment(wanted);
          const int64_t most = kSegment / 8;
          EXPECT_LE(length, most);
          int64_t longest = 0;
          for (const Step& step : algorithm.build(kind, Shape{size / 2, size, 0, count}).steps)
            longest = std::max(longest, step.range.count);
          EXPECT_EQ((longest + length - 1) / length, (longest + most - 1) / most)
              << algorithm.name << " " << collective_name(kind) << " " << size << " " << count;
        }
      }
    }
  }
}

TEST(Plan, HashTellsPlansApart) {
  std::set<uint64_t> seen;
  for (const Algorithm& algorithm : algorithms())
    for (int64_t count : {1, 128, 32768}) seen.insert(Plan{&algorithm, count}.hash());
  EXPECT_EQ(seen.size(), 3 * algorithms().size());
  // The hash is part of the wire format, so it is the same in every build.
  EXPECT_EQ((Plan{find_algorithm("ring"), 128}.hash()), 11600268198291653457u);
}

}  // namespace
}  // namespace ringdist
