// Transports over a simulated network that the test moves: times, order, faults, repeatability.
#include "support/sim/sim_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/sim/sim_transport.h"

namespace ringdist {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

// A rank that records its events with their times.
struct SimRank final : TransportDelegate {
  SimRank(std::shared_ptr<SimNetwork> of, ContextId id, int host) : network(std::move(of)), id(id) {
    network->place(id, host);
    TransportConfig config;
    config.context_id = id;
    auto made = SimTransport::create(config, network, *this, /*event_fd=*/false);
    EXPECT_TRUE(made.ok());
    transport = std::move(made.value());
  }
  void on_message(ContextId, ConstBytes header, const Payload& payload) override {
    got.push_back({static_cast<int>(header[0]), payload.size()});
    arrivals.push_back(network->now() - NetworkModel::kStart);
  }
  void on_sent(SendId send_id, const Error& error) override {
    EXPECT_FALSE(ended.contains(send_id)) << send_id;
    ended[send_id] = error;
  }
  void on_connection_lost(std::string_view, ContextId peer, const Error&) override {
    lost.push_back(peer);
    got_before_loss = got.size();
  }
  void send(ContextId to, int what, size_t bytes) {
    const std::vector<std::byte> header{static_cast<std::byte>(what)};
    const std::vector<std::byte> payload(bytes);
    transport->send(to, header, payload, ++tickets);
  }

  const std::shared_ptr<SimNetwork> network;
  const ContextId id;
  std::unique_ptr<SimTransport> transport;
  std::vector<std::pair<int, size_t>> got;
  std::vector<Duration> arrivals;
  std::map<SendId, Error> ended;
  std::vector<ContextId> lost;
  size_t got_before_loss = 0;
  SendId tickets = 0;
};

SimOptions gigabyte() {
  SimOptions out;
  out.costs.between.latency = microseconds(10);
  out.costs.between.bytes_per_second = 1e9;
  out.costs.inside.latency = microseconds(1);
  out.costs.inside.bytes_per_second = 10e9;
  return out;
}

// Ranks 1, 2, ... on the given hosts.
struct SimRoom {
  explicit SimRoom(const std::vector<int>& hosts, const SimOptions& options = gigabyte())
      : network(std::make_shared<SimNetwork>(options)) {
    for (const int host : hosts) ranks.emplace_back(network, ranks.size() + 1, host);
  }
  SimRank& operator[](ContextId id) { return ranks[id - 1]; }
  void run() {
    for (bool any = true; any;) {
      const auto at = network->next();
      if (at) network->move_to(*at);
      const auto woken = network->take_woken();
      for (const ContextId id : woken) (*this)[id].transport->progress();
      any = at || !woken.empty();
    }
  }

  const std::shared_ptr<SimNetwork> network;
  std::deque<SimRank> ranks;
};

TEST(SimNetwork, AMessageTakesLatencyAndBytesOverBandwidth) {
  SimRoom room({0, 0, 1});
  room[1].send(3, 7, 100000);
  room.run();
  ASSERT_EQ(room[3].got, (std::vector<std::pair<int, size_t>>{{7, 100000}}));
  EXPECT_EQ(room[3].arrivals[0], microseconds(10 + 100));
  EXPECT_FALSE(room[1].ended.at(1));
  const Duration before = room.network->now() - NetworkModel::kStart;
  room[1].send(2, 8, 100000);
  room.run();
  EXPECT_EQ(room[2].arrivals[0] - before, microseconds(1 + 10));
}

TEST(SimNetwork, RanksOfAHostShareItsNic) {
  SimRoom room({0, 0, 1, 2});
  for (int i = 0; i < 8; ++i) {
    room[1].send(3, i, 100000);
    room[2].send(4, i, 100000);
  }
  room.run();
  EXPECT_EQ(room[3].arrivals.back(), microseconds(10 + 1500));
  EXPECT_EQ(room[4].arrivals.back(), microseconds(10 + 1600)) << "both at half its rate";
}

TEST(SimNetwork, NothingArrivesWhileTheClockStands) {
  SimRoom room({0, 1});
  room[1].send(2, 1, 10);
  EXPECT_FALSE(room[2].transport->progress());
  EXPECT_FALSE(room[2].transport->drained(1));
  EXPECT_FALSE(room[1].transport->flushed());
  room.run();
  EXPECT_EQ(room[2].got.size(), 1u);
  EXPECT_TRUE(room[2].transport->drained(1));
  EXPECT_TRUE(room[1].transport->flushed());
}

TEST(SimNetwork, MessagesOfAPairKeepTheirOrderWhateverTheJitter) {
  SimOptions options = gigabyte();
  options.jitter = microseconds(500);
  SimRoom room({0, 1, 1}, options);
  for (int i = 0; i < 50; ++i)
    for (const ContextId from : {1, 3}) room[from].send(2, i, static_cast<size_t>(i % 7) * 1000);
  room.run();
  ASSERT_EQ(room[2].got.size(), 100u);
  std::vector<int> all;
  for (const auto& [what, size] : room[2].got) all.push_back(what);
  // Each number arrives from both senders, in order per sender.
  for (int i = 0; i < 50; ++i) EXPECT_EQ(std::ranges::count(all, i), 2);
  EXPECT_FALSE(std::ranges::is_sorted(all));
}

TEST(SimNetwork, TheSameSeedGivesTheSameRun) {
  const auto run = [](uint64_t seed) {
    SimOptions options = gigabyte();
    options.jitter = microseconds(100);
    options.seed = seed;
    SimRoom room({0, 0, 1, 2}, options);
    for (int i = 0; i < 40; ++i)
      room[static_cast<ContextId>(i % 4 + 1)].send(static_cast<ContextId>((i + 1) % 4 + 1), i, 500);
    room.run();
    std::vector<int64_t> out;
    for (const SimRank& rank : room.ranks)
      for (size_t i = 0; i < rank.got.size(); ++i) {
        out.push_back(rank.got[i].first);
        out.push_back(rank.arrivals[i].count());
      }
    return out;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST(SimNetwork, WhatAKilledProcessHadSentArrivesThenItsLossIsTold) {
  SimRoom room({0, 1, 2});
  for (int i = 0; i < 30; ++i) room[1].send(2, i, 100000);  // 3 ms, longer than losses last
  room[3].send(1, 0, 10);
  room.network->kill(1);
  EXPECT_FALSE(room.network->runs(1));
  room.run();
  EXPECT_EQ(room[2].got.size(), 30u);
  EXPECT_EQ(room[2].lost, (std::vector<ContextId>{1}));
  EXPECT_EQ(room[2].got_before_loss, 30u);
  EXPECT_EQ(room[3].lost, (std::vector<ContextId>{1}));
  EXPECT_TRUE(room[1].got.empty());
  EXPECT_TRUE(room[1].ended.empty());
  room[2].send(1, 5, 10);
  room.run();
  EXPECT_TRUE(room[2].ended.at(1)) << "it is known to be gone";
  EXPECT_FALSE(room[2].transport->reaches(1));
  room[1].transport->close();
  EXPECT_EQ(room[1].ended.size(), 30u) << "its owner gets its memory back";
}

// The send makes the connection to a peer that has already ended.
TEST(SimNetwork, WhoSendsToADeadOneHearsOfIt) {
  SimRoom room({0, 1});
  room.network->kill(2);
  room.run();
  EXPECT_TRUE(room[1].lost.empty()) << "they had not met";
  room[1].send(2, 1, 10);
  room.run();
  EXPECT_EQ(room[1].lost, (std::vector<ContextId>{2}));
  EXPECT_EQ(room[1].ended.size(), 1u);
}

TEST(SimNetwork, AStoppedProcessTakesNothingAndNobodyHears) {
  SimRoom room({0, 1});
  room.network->stop(2);
  room[1].send(2, 1, 10);
  room.run();
  EXPECT_TRUE(room[2].got.empty());
  EXPECT_TRUE(room[1].lost.empty());
  EXPECT_FALSE(room[1].transport->flushed());
  room.network->resume(2);
  room.run();
  EXPECT_EQ(room[2].got.size(), 1u);
}

TEST(SimNetwork, OverACutLinkNothingArrivesUntilItIsHealed) {
  SimRoom room({0, 1, 2});
  room.network->cut(0, 1);
  room[1].send(2, 1, 10);
  room[2].send(1, 2, 10);
  room[1].send(3, 3, 10);
  room.run();
  EXPECT_TRUE(room[2].got.empty());
  EXPECT_TRUE(room[1].got.empty());
  EXPECT_EQ(room[3].got.size(), 1u);
  EXPECT_FALSE(room[1].ended.contains(1));
  EXPECT_TRUE(room[1].lost.empty());
  room.network->heal(1, 0);
  room.run();
  EXPECT_EQ(room[2].got.size(), 1u);
  EXPECT_EQ(room[1].got.size(), 1u);
  EXPECT_TRUE(room[1].ended.contains(1));
}

TEST(SimNetwork, CloseGivesBackWhatACutLinkHolds) {
  SimRoom room({0, 1});
  room.network->cut(0, 1);
  room[1].send(2, 1, 10);
  room.run();
  room[1].transport->close();
  EXPECT_TRUE(room[1].ended.at(1));
}

TEST(SimNetwork, WhoDropsAPeerGetsItsSendsBack) {
  SimRoom room({0, 1});
  room.network->cut(0, 1);
  room[1].send(2, 1, 10);
  room.run();
  room[1].transport->drop_peer(2);
  room[1].transport->progress();
  EXPECT_TRUE(room[1].ended.at(1));
  EXPECT_FALSE(room[1].transport->reaches(2));
}

TEST(SimNetwork, AContextHasOneEnd) {
  SimRoom room({0});
  TransportConfig config;
  config.context_id = 1;
  EXPECT_FALSE(SimTransport::create(config, room.network, room[1], false).ok());
}

}  // namespace
}  // namespace ringdist
