#include "engine/op/op_log.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ringdist
