#include "engine/op/op_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace ringdist {
namespace {

std::shared_ptr<Op> make_op(uint64_t number) {
  OpRequest request;
  request.dtype = DType::kFloat32;
  auto op = std::make_shared<Op>(std::move(request));
  op->number = number;
  op->started = Clock::now();
  return op;
}

size_t count(const std::string& text, const std::string& part) {
  size_t out = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++out;
  return out;
}

std::vector<SampledCall> calls_of(const OpLog& log, uint64_t nonce, int rank, TimePoint since) {
  return log.calls(since)[{nonce, rank}];
}

TEST(OpLog, HasOpsInFlightAndEndedOnes) {
  OpLog log;
  EXPECT_EQ(log.json(), "[]");
  const auto first = make_op(1), second = make_op(2), third = make_op(3);
  for (const auto& op : {first, second, third}) log.begin(*op, 0xab, 5);
  log.end(*first, first->started, false);
  log.end(*second, second->started, true);
  const std::string text = log.json();
  EXPECT_EQ(count(text, R"("00000000000000ab",5,1,"all_reduce","float32",0,0,-1,)"), 1u) << text;
  EXPECT_EQ(count(text, ",true]"), 1u) << text;
  EXPECT_EQ(count(text, ",0,false]"), 1u) << text << ": in flight";
  EXPECT_LT(text.find(",5,1,"), text.find(",5,3,"));
}

TEST(OpLog, NamesSendsAndReceives) {
  OpLog log;
  const auto op = make_op(0);
  op->request.kind = Collective::kPointToPoint;
  op->request.envelope = Envelope{.peer = 3, .sends = true};
  log.begin(*op, 1, 0);
  op->request.envelope->sends = false;
  log.begin(*op, 1, 0);
  const std::string text = log.json();
  EXPECT_EQ(count(text, R"("send","float32",0,0,3,)"), 1u) << text;
  EXPECT_EQ(count(text, R"("recv","float32",0,0,3,)"), 1u) << text;
}

TEST(OpLog, KeepsTheLatest) {
  OpLog log;
  const auto old = make_op(1);
  log.begin(*old, 1, 0);
  for (size_t i = 0; i < OpLog::kKept; ++i) log.begin(*make_op(i + 2), 1, 0);
  log.end(*old, Clock::now(), true);         // its entry is another op's now
  log.end(*make_op(9), Clock::now(), true);  // it was never recorded
  const std::string text = log.json();
  EXPECT_EQ(count(text, "all_reduce"), OpLog::kKept);
  EXPECT_EQ(count(text, "true"), 0u);
  EXPECT_LE(text.size(), size_t{1} << 19) << "the limit of SnapshotAnswer";
}

TEST(OpLog, HasTheCallsOfOneGroup) {
  OpLog log;
  const TimePoint start = TimePoint() + std::chrono::hours(1);
  const auto record = [&](uint64_t number, uint64_t group, int at, int until) {
    const auto op = make_op(number);
    op->started = start + Milliseconds(at);
    op->usage.elapsed = 10000;
    log.begin(*op, group, 0);
    log.end(*op, start + Milliseconds(until), false);
  };
  EXPECT_TRUE(calls_of(log, 1, 0, start).empty());
  record(1, 1, 0, 10);
  record(1, 2, 12, 18);
  record(2, 2, 19, 100);
  record(0, 1, 19, 100);  // a send, which has no number
  record(2, 1, 20, 100);
  const auto calls = calls_of(log, 1, 0, start);
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].number, 1u);
  EXPECT_EQ(calls[0].elsewhere, 0u);
  EXPECT_EQ(calls[1].number, 2u);
  EXPECT_EQ(calls[1].began, start + Milliseconds(20));
  EXPECT_EQ(calls[1].elsewhere, 7000u) << "6 ms and 1 ms of the last 10 ms";
  EXPECT_EQ(calls[1].other_group, 2u);
  EXPECT_EQ(calls_of(log, 1, 0, start + Milliseconds(5)).size(), 1u);
  EXPECT_TRUE(calls_of(log, 1, 1, start).empty()) << "another rank";
}

TEST(OpLog, ChoosesTheSameCallsOnAllRanks) {
  OpLog first, second;
  for (uint64_t number = 1; number <= 1000; ++number) {
    first.begin(*make_op(number), 1, 0);
    if (number > 20) second.begin(*make_op(number), 1, 1);
  }
  const auto here = calls_of(first, 1, 0, {}), there = calls_of(second, 1, 1, {});
  ASSERT_GT(here.size(), CallSample::kMostCalls / 3);
  const auto even =
      std::ranges::count_if(here, [](const auto& call) { return call.number % 2 == 0; });
  EXPECT_GT(even, here.size() / 4) << "both of each two";
  EXPECT_LT(even, here.size() * 3 / 4);
  ASSERT_LE(here.size(), CallSample::kMostCalls);
  for (const SampledCall& call : there)
    EXPECT_EQ(std::ranges::count(here, call.number, &SampledCall::number), 1);
}

}  // namespace
}  // namespace ringdist
