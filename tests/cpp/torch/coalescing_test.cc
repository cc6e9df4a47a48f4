#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "torch/call_submitter.h"
#include "torch/ops/data_movement.h"
#include "torch/ops/reduce.h"
#include "torch/test_device.h"
#include "torch/work/test_work.h"

namespace ringdist {
namespace {

Call sum_of(int64_t elements, c10d::ReduceOp op = c10d::ReduceOp::SUM) {
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  Call call = allreduce_call({at::ones({elements})}, options);
  call.completions = {completion()};
  return call;
}

Call broadcast_of(int64_t elements) {
  Call call = broadcast_call({0, 2}, {at::ones({elements})}, {});
  call.completions = {completion()};
  return call;
}

// Coalescing regions with calls that end as soon as they are submitted.
class Regions {
 public:
  void begin() {
    coalescing.begin({[this](const std::vector<Call>& calls) { prepared.push_back(calls.size()); },
                      [this](Call call) {
                        submitted.push_back(std::move(call));
                        auto work = c10::make_intrusive<TestWork>();
                        work->end();
                        return work;
                      }});
  }
  c10::intrusive_ptr<c10d::Work> collect(Call call) { return coalescing.collect(call); }

  std::vector<Call> submitted;
  std::vector<size_t> prepared;  // number of calls of each region
  Coalescing coalescing{0, std::make_shared<Hooks>()};
};

TEST(Coalescing, RunsOfAllreducesBecomeOneOp) {
  Regions regions;
  regions.begin();
  for (Call& call : std::vector{sum_of(3), sum_of(4), broadcast_of(5), sum_of(6)})
    ASSERT_TRUE(regions.collect(std::move(call)));
  EXPECT_TRUE(regions.submitted.empty());
  EXPECT_TRUE(regions.coalescing.end()->wait());
  EXPECT_EQ(regions.prepared, std::vector<size_t>{3});
  ASSERT_EQ(regions.submitted.size(), 3U);
  EXPECT_EQ(regions.submitted[0].request.count, 7);
  EXPECT_EQ(regions.submitted[0].outputs.size(), 2U);
  EXPECT_EQ(regions.submitted[0].completions.size(), 2U);
  EXPECT_EQ(regions.submitted[1].request.kind, Collective::kBroadcast);
  EXPECT_EQ(regions.submitted[2].request.count, 6);
}

// Returns a send to, or a receive from, `peer`, on a device or on the host.
Call message(int peer, bool sends, std::vector<float>* on_device) {
  const at::Tensor tensor = on_device ? test::on_device(*on_device, {4}) : at::ones({4});
  std::vector<at::Tensor> tensors{tensor};
  Call call = sends ? send_call({0, 4}, tensors, peer, 0) : recv_call({0, 4}, tensors, peer, 0);
  call.completions = {completion()};
  return call;
}

TEST(Coalescing, SendsOfDevicesGoBeforeReceives) {
  test::reset_device();
  std::vector<float> memory(4);
  Regions regions;
  regions.begin();
  regions.collect(message(1, /*sends=*/false, &memory));
  regions.collect(message(2, /*sends=*/true, nullptr));
  regions.collect(sum_of(3));
  regions.collect(message(3, /*sends=*/true, &memory));
  regions.collect(message(2, /*sends=*/true, &memory));
  regions.coalescing.end();
  ASSERT_EQ(regions.submitted.size(), 5U);
  const auto peer = [&](size_t i) { return regions.submitted[i].request.envelope->peer; };
  EXPECT_EQ((std::vector{peer(0), peer(1), peer(3), peer(4)}), (std::vector{3, 2, 2, 1}));
  EXPECT_EQ(regions.submitted[2].request.kind, Collective::kAllreduce);
}

TEST(Coalescing, OtherReductionsStayApart) {
  Regions regions;
  regions.begin();
  regions.collect(sum_of(3));
  regions.collect(sum_of(3, c10d::ReduceOp::MAX));
  regions.coalescing.end();
  EXPECT_EQ(regions.submitted.size(), 2U);
}

TEST(Coalescing, WithoutARegionNothingIsTaken) {
  Regions regions;
  EXPECT_FALSE(regions.collect(sum_of(3)));
  EXPECT_TRUE(regions.coalescing.end()->wait());
}

TEST(Coalescing, WhoWaitsForOneCallStartsTheRegion) {
  Regions regions;
  regions.begin();
  const auto first = regions.collect(sum_of(3));
  EXPECT_FALSE(first->isCompleted());  // PyTorch's flight recorder queries this once
  EXPECT_TRUE(regions.submitted.empty());
  EXPECT_TRUE(first->wait());
  EXPECT_EQ(regions.submitted.size(), 1U);
  EXPECT_FALSE(regions.collect(sum_of(3)));  // the region has already started
  EXPECT_TRUE(regions.coalescing.end()->wait());
  EXPECT_EQ(regions.submitted.size(), 1U);
}

TEST(Coalescing, OfADroppedRegionNothingStarts) {
  Regions regions;
  regions.begin();
  const auto work = regions.collect(sum_of(3));
  regions.coalescing.drop();
  EXPECT_NE(thrown_by([&] { work->wait(); }).find("was dropped"), std::string::npos);
  EXPECT_TRUE(regions.submitted.empty());
  EXPECT_FALSE(regions.collect(sum_of(3)));
}

TEST(Coalescing, WhatHasStartedOtherwiseIsWaitedFor) {
  Regions regions;
  regions.begin();
  const auto started = c10::make_intrusive<TestWork>();
  regions.coalescing.adopt(started);
  const auto whole = regions.coalescing.end();
  EXPECT_EQ(thrown_by([&] { whole->wait(); }), "expired");
  started->end();
  EXPECT_TRUE(whole->wait());
}

}  // namespace
}  // namespace ringdist
