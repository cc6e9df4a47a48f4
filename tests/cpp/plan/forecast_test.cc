#include "plan/forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

namespace ringdist {
namespace {

ForecastRequest request(Collective kind, int64_t count, std::vector<std::vector<int>> hosts) {
  ForecastRequest out;
  int size = 0;
  for (const auto& host : hosts) size += static_cast<int>(host.size());
  out.options = {0, size, "", false, 252 * 1024};
  out.request.kind = kind;
  out.request.reduce_op = ReduceOp::kSum;
  out.request.count = count;
  out.topology = Topology::from_hosts(std::move(hosts), size);
  out.costs = usual_costs(1e9, std::chrono::microseconds(50));
  return out;
}

const Alternative& find(const Forecast& forecast, std::string_view name) {
  const auto found = std::ranges::find_if(
      forecast.alternatives, [&](const Alternative& one) { return one.algorithm->name == name; });
  EXPECT_NE(found, forecast.alternatives.end()) << name;
  return *found;
}

TEST(Forecast, NamesThePlannersChoiceAndAllThatHaveTheCollective) {
  for (const Collective kind : {Collective::kAllreduce, Collective::kBroadcast,
                                Collective::kAllgather, Collective::kAlltoall}) {
    for (const int64_t count : {1, 100'000}) {
      const auto wanted = request(kind, count, {{0, 1}, {2}});
      const Forecast found = forecast(wanted).value();
      Planner planner(wanted.options);
      planner.set_network(wanted.topology, wanted.costs);
      const Plan plan = planner.plan(wanted.request).value();
      EXPECT_EQ(found.plan.hash(), plan.hash());
      EXPECT_FALSE(found.plan.why.empty());
      size_t have = 0;
      for (const Algorithm& algorithm : algorithms()) have += algorithm.supports(kind) ? 1 : 0;
      EXPECT_EQ(found.alternatives.size(), have);
      for (const Alternative& one : found.alternatives) {
        EXPECT_EQ(one.refusal, "");
        EXPECT_EQ(one.plan.algorithm, one.algorithm);
        ASSERT_TRUE(one.walked);
        EXPECT_GT(one.cost, Duration(0));
        EXPECT_GT(one.walked->time, Duration(0));
      }
    }
  }
}

TEST(Forecast, SaysWhatMayNotBeTaken) {
  auto wanted = request(Collective::kAllreduce, 1000, {{0, 1}});
  wanted.options.layout_deterministic = true;
  EXPECT_NE(find(forecast(wanted).value(), "ring").refusal.find("layout"), std::string::npos);
  EXPECT_EQ(find(forecast(wanted).value(), "direct").refusal, "");
  wanted.options.layout_deterministic = false;
  wanted.request.dtype = DType::kInt32;
  wanted.request.reduce_op = ReduceOp::kAvg;
  const Forecast average = forecast(wanted).value();
  EXPECT_NE(find(average, "ring").refusal.find("integers"), std::string::npos);
  EXPECT_FALSE(find(average, "ring").walked);
}

TEST(Forecast, CodecsCountTheirBytes) {
  auto wanted = request(Collective::kAllreduce, 1 << 20, {{0}, {1}});
  wanted.options.algorithm = "direct";
  const Walked plain = *find(forecast(wanted).value(), "direct").walked;
  BlockMap map;
  map.parts.push_back({0, 1 << 20, parse_codec_pair("int4", 2).value()});
  wanted.request.blocks = std::make_shared<const BlockMap>(map);
  const Forecast coded = forecast(wanted).value();
  EXPECT_EQ(find(coded, "one_shot").refusal, "serves no codecs");
  const Walked walked = *find(coded, "direct").walked;
  const double ratio = static_cast<double>(plain.bytes_between) / walked.bytes_between;
  EXPECT_GT(ratio, 7);
  EXPECT_LT(ratio, 8);
  EXPECT_LT(walked.time, plain.time);
}

TEST(Forecast, ForcedAndRefused) {
  auto wanted = request(Collective::kAllreduce, 1000, {{0, 1}});
  wanted.options.algorithm = "ring";
  EXPECT_EQ(forecast(wanted).value().plan.algorithm->name, "ring");
  EXPECT_EQ(forecast(wanted).value().plan.why, "it is forced");
  wanted.options.algorithm = "star";
  EXPECT_EQ(forecast(wanted).error().kind(), ErrorKind::kInvalidArgument);
}

}  // namespace
}  // namespace ringdist
