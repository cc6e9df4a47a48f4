// A control plane without its thread. The test runs its iterations. Time is simulated, connections
// are real.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "control/control_plane.h"
#include "control/fixture.h"

namespace ringdist::test {

// Records events.
struct Told final : ControlDelegate {
  void on_process_lost(uint64_t id, const Error&) override { lost.push_back(id); }
  void on_process_left(uint64_t id) override { left.push_back(id); }
  void on_control_failed(const Error&) override {}
  void on_flood(uint64_t /*origin*/, std::span<const std::byte> payload) override {
    floods.push_back(static_cast<int>(payload[0]));
  }
  void on_membership_stream(FramedSocket, const ControlHello&, LinkKind) override {}
  void on_data_socket(Stream, ConstBytes) override {}
  std::string dump() override { return ""; }
  std::string snapshot(uint8_t) override { return "{}"; }
  auto lost_times(uint64_t id) const { return std::ranges::count(lost, id); }
  auto left_times(uint64_t id) const { return std::ranges::count(left, id); }
  auto flood_times(int text) const { return std::ranges::count(floods, text); }

  std::vector<uint64_t> lost, left;
  std::vector<int> floods;
};

struct SteppedPlane {
  explicit SteppedPlane(uint64_t its_id) : id(its_id) {
    const Error error = plane.listen("127.0.0.1");
    EXPECT_FALSE(error) << error.what();
  }
  ControlMember member(int rank, int host) const {
    return {rank, id, host, plane.unix_name(), plane.tcp_address(), getpid(), "h"};
  }

  const uint64_t id;
  Result<Epoll> epoll = Epoll::create();
  Told told;
  ControlPlane plane{id, config_with_timeout(10), told, epoll.value()};
};

// Runs one iteration, like ControlThread.
inline void turn(SteppedPlane& one, TimePoint now, const std::function<void()>& command = nullptr) {
  const auto events = one.epoll.value().wait(Duration(0));
  one.plane.begin_turn(now);
  for (const auto& event : events) one.plane.on_event(event);
  if (command) command();
  one.plane.end_turn();
}

}  // namespace ringdist::test
