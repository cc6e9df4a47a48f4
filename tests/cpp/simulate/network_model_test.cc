// Departure and arrival times of messages over a NetworkModel.
#include "simulate/network_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace ringdist {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

// Returns costs of 1 byte per nanosecond between hosts and 10 inside. Each end copies 10.
NetworkCosts plain_costs() {
  return {.inside = {.latency = nanoseconds(100),
                     .bytes_per_second = 10e9,
                     .copied_per_second = 10e9,
                     .per_message = nanoseconds(50)},
          .between = {.latency = microseconds(5),
                      .bytes_per_second = 1e9,
                      .copied_per_second = 10e9,
                      .per_message = nanoseconds(500),
                      .framing = 100}};
}

struct NetworkModelRecorder final : NetworkModelDelegate {
  explicit NetworkModelRecorder(const NetworkCosts& costs, uint64_t seed = 1, Duration jitter = {})
      : wire(costs, *this, seed, jitter) {}

  void on_left(int id) override { left[id] = wire.now() - NetworkModel::kStart; }
  void on_arrived(int id) override {
    arrived[id] = wire.now() - NetworkModel::kStart;
    order.push_back(id);
    if (answer) answer(id);
  }
  void on_time(int id) override { times.push_back(id); }

  int send(int from, int to, int64_t bytes, bool written = false) {
    Transfer one;
    one.from = from;
    one.to = to;
    one.flow = static_cast<uint64_t>(from) << 32 | static_cast<uint64_t>(to);
    one.bytes = bytes;
    one.inside = wire.host_of(from) == wire.host_of(to);
    one.copied = written ? 0 : 1;
    return wire.send(one);
  }
  void run() {
    while (wire.next()) wire.move_to(*wire.next());
  }

  NetworkModel wire;
  std::map<int, Duration> left;
  std::map<int, Duration> arrived;
  std::vector<int> order;
  std::vector<int> times;
  std::function<void(int)> answer;
};

TEST(NetworkModel, AMessageTakesLatencyAndItsBytesOnTheLineAndAtBothEnds) {
  NetworkModelRecorder net(plain_costs());
  for (const int host : {0, 0, 1}) net.wire.add_core(host);
  const int near = net.send(0, 1, 10000);
  net.run();
  EXPECT_EQ(net.left[near], nanoseconds(50 + 1000 + 1000));
  EXPECT_EQ(net.arrived[near], nanoseconds(50 + 1000 + 1000 + 100 + 50 + 1000));
  NetworkModelRecorder far_net(plain_costs());
  for (const int host : {0, 0, 1}) far_net.wire.add_core(host);
  const int far = far_net.send(0, 2, 10000);
  far_net.run();
  EXPECT_EQ(far_net.left[far], nanoseconds(1500 + 10100));
  EXPECT_EQ(far_net.arrived[far], nanoseconds(1500 + 10100 + 5000 + 1500));
}

TEST(NetworkModel, WhatIsWrittenWhereItLeavesFromIsNotCopiedFirst) {
  NetworkModelRecorder net(plain_costs());
  for (const int host : {0, 0}) net.wire.add_core(host);
  const int id = net.send(0, 1, 10000, /*written=*/true);
  net.run();
  EXPECT_EQ(net.left[id], nanoseconds(50 + 1000));
}

TEST(NetworkModel, RatesOfZeroTakeNoTime) {
  NetworkModelRecorder net({});
  for (const int host : {0, 0}) net.wire.add_core(host);
  const int id = net.send(0, 1, 1 << 20);
  net.run();
  EXPECT_EQ(net.arrived[id], nanoseconds(0));
}

// Two ranks of a host each send more than the line carries at a time. The second one has much less
// to send.
TEST(NetworkModel, RanksOfAHostShareItsLineInTurn) {
  NetworkCosts costs;
  costs.between.bytes_per_second = 1e9;
  NetworkModelRecorder net(costs);
  for (const int host : {0, 0, 1, 2}) net.wire.add_core(host);
  std::vector<int> many;
  std::vector<int> few;
  for (int i = 0; i < 20; ++i) many.push_back(net.send(0, 2, 1000));
  for (int i = 0; i < 5; ++i) few.push_back(net.send(1, 3, 1000));
  net.run();
  EXPECT_LE(net.arrived[few.back()],
            nanoseconds(11000));  // in turn, not after the other's 20 messages
  EXPECT_EQ(net.arrived[many.back()], nanoseconds(25000));
}

TEST(NetworkModel, SendersToAHostShareTheLineIntoIt) {
  NetworkCosts costs;
  costs.between.bytes_per_second = 1e9;
  NetworkModelRecorder net(costs);
  for (const int host : {0, 1, 2}) net.wire.add_core(host);
  const int first = net.send(0, 2, 1000);
  const int second = net.send(1, 2, 1000);
  net.run();
  EXPECT_EQ(net.left[second], nanoseconds(1000));  // their own lines are free
  EXPECT_EQ(net.arrived[first], nanoseconds(1000));
  EXPECT_EQ(net.arrived[second], nanoseconds(2000));
}

TEST(NetworkModel, APairOfHostsMayHaveASlowLineOfItsOwn) {
  NetworkCosts costs;
  costs.between.bytes_per_second = 1e9;
  NetworkModelRecorder net(costs);
  for (const int host : {0, 1, 2}) net.wire.add_core(host);
  net.wire.link(0, 1, microseconds(20), 0.1e9);
  const int slow = net.send(0, 1, 1000);
  const int fast = net.send(0, 2, 1000);
  net.run();
  EXPECT_EQ(net.arrived[slow], nanoseconds(10000 + 20000));
  EXPECT_EQ(net.arrived[fast], nanoseconds(2000)) << "the slow line is beyond the host's own";
}

// A core alternates between sending and receiving, like a lane.
TEST(NetworkModel, ACoreSendsAndReceivesInTurn) {
  NetworkCosts costs;
  costs.inside.per_message = nanoseconds(100);
  NetworkModelRecorder net(costs);
  for (const int host : {0, 0}) net.wire.add_core(host);
  int last = 0;
  for (int i = 0; i < 10; ++i) last = net.send(1, 0, 0);
  const int incoming = net.send(0, 1, 0);
  net.run();
  EXPECT_LE(net.arrived[incoming], nanoseconds(400));
  EXPECT_LE(net.left[last], nanoseconds(1100));
}

TEST(NetworkModel, JitterIsOfTheSeedAndKeepsTheOrderOfAFlow) {
  const auto run = [](uint64_t seed) {
    NetworkModelRecorder net(plain_costs(), seed, microseconds(50));
    for (const int host : {0, 0, 1}) net.wire.add_core(host);
    for (int i = 0; i < 30; ++i) net.send(0, i % 3 == 0 ? 1 : 2, i * 100);
    std::vector<int> out;
    net.run();
    for (const int id : net.order) out.push_back(id);
    for (const auto& [id, time] : net.arrived) out.push_back(static_cast<int>(time.count()));
    return std::pair(out, net.order);
  };
  EXPECT_EQ(run(3), run(3));
  EXPECT_NE(run(3), run(4));
  std::vector<int> far;
  for (const int id : run(5).second)
    if (id % 3 != 0) far.push_back(id);
  EXPECT_TRUE(std::ranges::is_sorted(far));
}

TEST(NetworkModel, WhatIsSentOverACutLinkArrivesWhenItIsHealed) {
  NetworkModelRecorder net(plain_costs());
  for (const int host : {0, 1}) net.wire.add_core(host);
  net.wire.cut(0, 1);
  const int there = net.send(0, 1, 10);
  const int back = net.send(1, 0, 10);
  net.run();
  EXPECT_FALSE(net.left.contains(there));
  EXPECT_FALSE(net.arrived.contains(there));
  EXPECT_TRUE(net.arrived.contains(back)) << "only one direction is cut";
  net.wire.move_to(NetworkModel::kStart + microseconds(500));
  net.wire.heal(0, 1);
  net.run();
  EXPECT_GE(net.left[there], microseconds(500));
  EXPECT_GE(net.arrived[there], microseconds(500));
}

// A cut at any moment of a message's way loses nothing. After the cut is healed, the message
// arrives once.
TEST(NetworkModel, ACutAtAnyMomentLosesNothing) {
  for (int moment = 0; moment < 40; ++moment) {
    NetworkModelRecorder net(plain_costs());
    for (const int host : {0, 1}) net.wire.add_core(host);
    for (int i = 0; i < 3; ++i) net.send(0, 1, 2000);
    net.wire.move_to(NetworkModel::kStart + moment * nanoseconds(400));
    net.wire.cut(0, 1);
    net.wire.move_to(net.wire.now() + nanoseconds(700));
    net.wire.heal(0, 1);
    net.run();
    EXPECT_EQ(net.left.size(), 3u) << moment;
    EXPECT_EQ(net.order, (std::vector<int>{0, 1, 2})) << moment;
    for (int id = 0; id < 3; ++id) EXPECT_LE(net.left[id], net.arrived[id]) << moment;
  }
}

TEST(NetworkModel, ACoreThatIsHeldTakesNothing) {
  NetworkModelRecorder net(plain_costs());
  for (const int host : {0, 1}) net.wire.add_core(host);
  net.wire.hold(1, true);
  const int id = net.send(0, 1, 10);
  net.run();
  EXPECT_TRUE(net.left.contains(id));
  EXPECT_FALSE(net.arrived.contains(id));
  net.wire.hold(1, false);
  net.run();
  EXPECT_TRUE(net.arrived.contains(id));
}

TEST(NetworkModel, IdsAreUsedAgainAndTimesCome) {
  NetworkModelRecorder net(plain_costs());
  for (const int host : {0, 1}) net.wire.add_core(host);
  int left = 100;
  int highest = 0;
  net.answer = [&](int) {
    if (--left > 0) highest = std::max(highest, net.send(0, 1, 8));
  };
  net.send(0, 1, 8);
  net.wire.at(NetworkModel::kStart + microseconds(3), 7);
  net.wire.at(NetworkModel::kStart + microseconds(1), 8);
  net.run();
  EXPECT_LE(highest, 1);
  EXPECT_EQ(net.order.size(), 100u);
  EXPECT_EQ(net.times, (std::vector<int>{8, 7}));
}

}  // namespace
}  // namespace ringdist
