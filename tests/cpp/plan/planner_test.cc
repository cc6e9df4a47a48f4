#include "plan/planner.h"

#include <gtest/gtest.h>

#include "codec/codec.h"

namespace ringdist {
namespace {

PlannerOptions options() { return {1, 4, "", false, 258048}; }

OpSpec allreduce(int64_t count) {
  OpSpec out;
  out.kind = Collective::kAllreduce;
  out.dtype = DType::kFloat32;
  out.reduce_op = ReduceOp::kSum;
  out.count = count;
  return out;
}

std::shared_ptr<const CodecMap> one_part_of(int64_t count, const char* codec) {
  auto out = std::make_shared<CodecMap>();
  out->parts.push_back({0, count, parse_codec_pair(codec, 4).value(), nullptr});
  return out;
}

TEST(Planner, CompilesOncePerShapeAndPlan) {
  Planner planner(options());
  const OpSpec request = allreduce(1000);
  const Plan plan = planner.plan(request).value();
  const auto schedule = planner.schedule(request, plan);
  EXPECT_EQ(planner.schedule(request, plan), schedule);
  EXPECT_NE(planner.schedule(allreduce(1001), plan), schedule);
  OpSpec coded = allreduce(1000);
  coded.codec_map = one_part_of(1000, "int8");
  EXPECT_NE(planner.schedule(coded, planner.plan(coded).value()), schedule);
}

// A cached plan must equal the plan that would be made.
TEST(Planner, PreparesAsItPlans) {
  Planner planner(options());
  std::vector<OpSpec> requests(6, allreduce(1000));
  requests[1].dtype = DType::kInt64;
  requests[2].reduce_op = ReduceOp::kMax;
  requests[3].count = 1001;
  requests[4].of_state = true;
  requests[5].kind = Collective::kBroadcast;
  requests.push_back(requests[5]);
  requests[6].root = 2;
  for (int round = 0; round < 2; ++round)
    for (const OpSpec& request : requests) {
      const PreparedPlan prepared = planner.prepare(request).value();
      const Plan plan = planner.plan(request).value();
      EXPECT_EQ(prepared.plan.hash(), plan.hash());
      EXPECT_EQ(prepared.schedule, planner.schedule(request, plan));
      EXPECT_EQ(prepared.fingerprint, fingerprint_of(request, plan));
    }
}

// A device op has the same plan as a host op but another fingerprint, and no schedule here.
TEST(Planner, TellsDevicesFromTheHost) {
  Planner planner(options());
  OpSpec request = allreduce(1000);
  const PreparedPlan host = planner.prepare(request).value();
  request.on_device = true;
  for (int round = 0; round < 2; ++round) {
    const PreparedPlan device = planner.prepare(request).value();
    EXPECT_EQ(device.plan.hash(), host.plan.hash());
    EXPECT_EQ(device.schedule, nullptr);
    EXPECT_FALSE(device.fingerprint == host.fingerprint);
    EXPECT_TRUE(device.fingerprint.on_device());
    EXPECT_EQ(device.fingerprint.codec_id(), 0);
  }
  EXPECT_FALSE(host.fingerprint.on_device());
  EXPECT_NE(host.schedule, nullptr);
}

TEST(Planner, PreparesWhatItKeepsNothingOf) {
  Planner planner(options());
  OpSpec coded = allreduce(1000);
  EXPECT_EQ(planner.prepare(coded).value().fingerprint.codec_id(), 0);
  coded.codec_map = one_part_of(1000, "int8");
  EXPECT_NE(planner.prepare(coded).value().fingerprint.codec_id(), 0);
  OpSpec message;
  message.kind = Collective::kPointToPoint;
  message.envelope = Envelope{0, 7, true};
  message.count = 5;
  EXPECT_EQ(planner.prepare(message).value().schedule, nullptr);
  Planner tiny({1, 4, "", false, 1});
  EXPECT_EQ(tiny.prepare(allreduce(1)).error().kind(), ErrorKind::kInvalidArgument);
}

TEST(Planner, KeepsNoScheduleOfPartsThatDiffer) {
  Planner planner(options());
  OpSpec request;
  request.kind = Collective::kAllgather;
  request.count = 3;
  request.output_parts = {1, 2, 3, 4};
  const Plan plan = planner.plan(request).value();
  EXPECT_NE(planner.schedule(request, plan), planner.schedule(request, plan));
}

TEST(Planner, AFingerprintTellsWhatRanksMustShare) {
  const Planner planner(options());
  const auto print = [&](const OpSpec& request) {
    return fingerprint_of(request, planner.plan(request).value());
  };
  const Fingerprint plain = print(allreduce(1000));
  EXPECT_EQ(plain, print(allreduce(1000)));
  EXPECT_NE(plain, print(allreduce(1001)));
  OpSpec request = allreduce(1000);
  request.codec_map = one_part_of(1000, "int8");
  const Fingerprint coded = print(request);
  EXPECT_NE(coded.plan, plain.plan);
  EXPECT_EQ(coded.codec_id(), parse_codec("int8").value()->wire_id());
  OpSpec state = allreduce(1000);
  state.of_state = true;
  EXPECT_EQ(print(state).root, Fingerprint::kOfState);
  OpSpec parts;
  parts.kind = Collective::kAlltoall;
  parts.count = 7;
  EXPECT_EQ(print(parts).count, Fingerprint::kPerEdge);
}

TEST(Planner, RefusesWhatCannotBePlanned) {
  PlannerOptions wanted = options();
  wanted.segment_bytes = 2;
  const auto refused = Planner(wanted).plan(allreduce(10));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message().find("2 bytes holds no element"), std::string::npos);
  OpSpec message = allreduce(10);
  message.kind = Collective::kPointToPoint;
  message.envelope = Envelope{0, 5, true};
  const auto too_long = Planner(wanted).plan(message);
  ASSERT_FALSE(too_long.ok());
  EXPECT_NE(too_long.error().message().find("segment_bytes: 2"), std::string::npos);
  OpSpec integers = allreduce(10);
  integers.dtype = DType::kInt32;
  integers.codec_map = one_part_of(10, "int8");
  const auto uncoded = Planner(options()).plan(integers);
  ASSERT_FALSE(uncoded.ok());
  EXPECT_NE(uncoded.error().message().find("a codec needs float32"), std::string::npos);
}

TEST(Planner, AMessageIsOneStep) {
  const Planner planner(options());
  OpSpec request = allreduce(200'000);
  request.kind = Collective::kPointToPoint;
  for (const bool sends : {true, false}) {
    request.envelope = Envelope{sends ? 3 : Envelope::kAnySource, 5, sends};
    const Plan plan = planner.plan(request).value();
    const auto schedule = message_schedule(request, plan, 3);
    ASSERT_EQ(schedule->steps.size(), 1u);
    const CompiledStep& step = schedule->steps[0];
    EXPECT_EQ(step.segments, 4);
    EXPECT_EQ(step.step.kind, sends ? StepKind::kSend : StepKind::kRecv);
    EXPECT_EQ((sends ? step.out : step.in).at(0).peer, 3);
  }
}

}  // namespace
}  // namespace ringdist
