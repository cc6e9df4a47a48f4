#include "simulate/plan_explanation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

namespace ringdist {
namespace {

ExplainRequest request(Collective kind, int64_t count, std::vector<std::vector<int>> hosts) {
  ExplainRequest out;
  int size = 0;
  for (const auto& host : hosts) size += static_cast<int>(host.size());
  out.options = {0, size, "", false, 252 * 1024};
  out.request.kind = kind;
  out.request.reduce_op = ReduceOp::kSum;
  out.request.count = count;
  out.topology = Topology::from_hosts(std::move(hosts), size);
  out.costs = default_costs(1e9, std::chrono::microseconds(50));
  return out;
}

const PlanAlternative& find(const PlanExplanation& explain_plan, std::string_view name) {
  const auto found =
      std::ranges::find_if(explain_plan.alternatives,
                           [&](const PlanAlternative& one) { return one.algorithm->name == name; });
  EXPECT_NE(found, explain_plan.alternatives.end()) << name;
  return *found;
}

TEST(PlanExplanation, NamesThePlannersChoiceAndAllThatHaveTheCollective) {
  for (const Collective kind : {Collective::kAllreduce, Collective::kBroadcast,
                                Collective::kAllgather, Collective::kAlltoall}) {
    for (const int64_t count : {1, 100'000}) {
      const auto wanted = request(kind, count, {{0, 1}, {2}});
      const PlanExplanation found = explain_plan(wanted).value();
      Planner planner(wanted.options);
      planner.set_network(wanted.topology, wanted.costs);
      const Plan plan = planner.plan(wanted.request).value();
      EXPECT_EQ(found.plan.hash(), plan.hash());
      EXPECT_FALSE(found.plan.why.empty());
      size_t have = 0;
      for (const Algorithm& algorithm : algorithms()) have += algorithm.supports(kind) ? 1 : 0;
      EXPECT_EQ(found.alternatives.size(), have);
      for (const PlanAlternative& one : found.alternatives) {
        EXPECT_EQ(one.refusal, "");
        EXPECT_EQ(one.plan.algorithm, one.algorithm);
        ASSERT_TRUE(one.simulated);
        EXPECT_GT(one.cost, Duration(0));
        EXPECT_GT(one.simulated->time, Duration(0));
      }
    }
  }
}

TEST(PlanExplanation, SaysWhatMayNotBeTaken) {
  auto wanted = request(Collective::kAllreduce, 1000, {{0, 1}});
  wanted.options.layout_deterministic = true;
  EXPECT_NE(find(explain_plan(wanted).value(), "ring").refusal.find("layout"), std::string::npos);
  EXPECT_EQ(find(explain_plan(wanted).value(), "direct").refusal, "");
  wanted.options.layout_deterministic = false;
  wanted.request.dtype = DType::kInt32;
  wanted.request.reduce_op = ReduceOp::kAvg;
  const PlanExplanation average = explain_plan(wanted).value();
  EXPECT_NE(find(average, "ring").refusal.find("integers"), std::string::npos);
  EXPECT_FALSE(find(average, "ring").simulated);
}

TEST(PlanExplanation, CodecsCountTheirBytes) {
  auto wanted = request(Collective::kAllreduce, 1 << 20, {{0}, {1}});
  wanted.options.algorithm = "direct";
  const SimulationResult plain = *find(explain_plan(wanted).value(), "direct").simulated;
  CodecMap map;
  map.parts.push_back({0, 1 << 20, parse_codec_pair("int4", 2).value()});
  wanted.request.codec_map = std::make_shared<const CodecMap>(map);
  const PlanExplanation coded = explain_plan(wanted).value();
  EXPECT_EQ(find(coded, "one_shot").refusal, "serves no codecs");
  const SimulationResult simulated = *find(coded, "direct").simulated;
  const double ratio = static_cast<double>(plain.bytes_between) / simulated.bytes_between;
  EXPECT_GT(ratio, 7);
  EXPECT_LT(ratio, 8);
  EXPECT_LT(simulated.time, plain.time);
}

TEST(PlanExplanation, ForcedAndRefused) {
  auto wanted = request(Collective::kAllreduce, 1000, {{0, 1}});
  wanted.options.algorithm = "ring";
  EXPECT_EQ(explain_plan(wanted).value().plan.algorithm->name, "ring");
  EXPECT_EQ(explain_plan(wanted).value().plan.why, "it is forced");
  wanted.options.algorithm = "star";
  EXPECT_EQ(explain_plan(wanted).error().kind(), ErrorKind::kInvalidArgument);
}

}  // namespace
}  // namespace ringdist
