// The groups that this process is in: who their members are, and how far each has come. Control
// thread only; no locks.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "control/control_connection.h"
#include "control/link_topology.h"

namespace ringdist {

struct ControlGroup {
  enum class State : uint8_t {
    kConnecting,
    kConnected,  // all links that this process needs were up once: its hosts are judged since then
    kLeft,       // by all ranks of this process; it stays until the others have heard so
  };

  explicit ControlGroup(LinkTopology members) : roster(std::move(members)) {}
  State state() const {
    return ranks.empty() ? State::kLeft : connected ? State::kConnected : State::kConnecting;
  }
  bool left() const { return state() == State::kLeft; }
  void connect(TimePoint now) {
    judged_since = now;
    connected = true;
  }

  LinkTopology roster;
  std::set<int> ranks;     // of this process
  bool connected = false;  // also of one that was left
  bool formed = false;     // ControlGossip: every member is known to have found all others
  bool representative = false;
  std::optional<TimePoint> judged_since;
  // Per neighbour host: when anything came from it last, also by processes that are gone now.
  std::map<int, TimePoint> heard;
  TimePoint left_at{};
  std::map<int, size_t> scan;  // per neighbour host: where the search for a live process stands
};

class ControlGroupTable {
 public:
  // A rank of process `id`, which is this one, is a member.
  ControlGroup& join(uint64_t nonce, uint64_t id, int rank,
                     const std::vector<ControlMember>& members);
  // True if no rank of this process is in it any more.
  bool leave(uint64_t nonce, int rank, TimePoint now);
  // Forgets those that were left and of which every member has `heard`, or a minute later; their
  // nonces.
  std::vector<uint64_t> forget_left(
      const std::function<bool(uint64_t nonce, const ControlGroup&)>& heard, TimePoint now);

  // Whether it was forgotten as one that every member had formed, or left, `process` one of them;
  // of the last 256 such.
  bool over(uint64_t nonce, uint64_t process) const;

  ControlGroup* find(uint64_t nonce);
  std::map<uint64_t, ControlGroup>& all() { return groups_; }
  const std::map<uint64_t, ControlGroup>& all() const { return groups_; }

  // The process as some group knows it; null if none does.
  const ControlMember* member(uint64_t id) const;
  // Some group that was not left has it; any group has it.
  bool is_monitored(uint64_t id) const;
  bool has(uint64_t id) const { return member(id) != nullptr; }
  // Where to dial it, and the group to name: one of both; empty and 0 if there is none.
  struct Address {
    std::string address;
    uint64_t nonce = 0;
  };
  Address address_of(uint64_t id, LinkKind kind) const;

  void discount_pause(Duration pause, TimePoint now);

 private:
  std::map<uint64_t, ControlGroup> groups_;
  struct ForgottenGroup {
    uint64_t nonce;
    std::vector<uint64_t> processes;
  };
  std::deque<ForgottenGroup> over_;  // the oldest first
};

}  // namespace ringdist
