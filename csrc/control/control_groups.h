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

namespace ringdist {

// A rank of a group, as its store entry and the host proof tell. Several ranks may share a Context.
struct ControlMember {
  int rank = -1;
  uint64_t context_id = 0;
  int host = 0;  // index in the group's topology
  std::string unix_name;
  std::string tcp_address;
  int pid = 0;  // for messages only
  std::string host_name;
};

// Who is connected to whom in one group. Inside a host: everyone with everyone. Between hosts: host
// h with the hosts h +- 2^k (mod H), so that a notice passes few hops, each pair through the two
// lowest live processes of each host, its *representatives*, first to first and second to second;
// the next process steps in when one is gone. Pure functions of the member list and of who is gone.
class LinkTopology {
 public:
  // Tells whether a process is lost or has left.
  using HasDeparted = std::function<bool(uint64_t)>;

  LinkTopology(uint64_t my_context, int my_rank, std::vector<ControlMember> members);

  bool has(uint64_t context_id) const { return processes_.contains(context_id); }
  // The lowest rank of a process, which stands for it in messages and orders.
  const ControlMember& member(uint64_t context_id) const { return processes_.at(context_id); }
  const std::map<uint64_t, ControlMember>& processes() const { return processes_; }

  // The other processes of my host, by rank.
  std::vector<uint64_t> local_peers() const;

  // The other hosts that mine is linked to.
  const std::vector<int>& neighbours() const { return neighbours_; }
  const std::vector<uint64_t>& processes_of(int host) const { return hosts_.at(host); }
  bool representative(const HasDeparted& departed) const;
  // The processes of a neighbour that mine is linked to; none unless it is a representative.
  std::vector<uint64_t> links_to(int host, const HasDeparted& departed) const;

  // Of two linked processes one dials first.
  bool dials_first(uint64_t peer) const;
  int my_host() const { return my_host_; }
  size_t host_count() const { return hosts_.size(); }

 private:
  std::vector<uint64_t> representatives(int host, const HasDeparted& departed) const;

  uint64_t my_context_;
  int my_host_ = 0;
  std::map<uint64_t, ControlMember> processes_;
  std::map<int, std::vector<uint64_t>> hosts_;  // processes by rank
  std::vector<int> neighbours_;
};

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

// Which processes have found all others of a group. It is the last phase of a group's formation:
// who has connected says so, and no rank's connect_group() returns before all have. So a process
// whose first operations are done may end, and take the store with it: nobody looks for members any
// more. Control thread only; no locks.
class FormationBarrier {
 public:
  // Those of them that were not known. Of groups for which `ours` is false the oldest are forgotten
  // when there are many: others may know of a group before this process does. What throws may have
  // learned a part.
  std::vector<uint64_t> learn(uint64_t nonce, const std::vector<uint64_t>& processes,
                              const std::function<bool(uint64_t nonce)>& ours);
  void forget(uint64_t nonce);

  bool has(uint64_t nonce, uint64_t process) const;
  // All that are known; none if there is none.
  std::vector<uint64_t> of(uint64_t nonce) const;

 private:
  std::set<uint64_t>& enter(uint64_t nonce, const std::function<bool(uint64_t nonce)>& ours);

  std::map<uint64_t, std::set<uint64_t>> known_;  // by nonce
  std::deque<uint64_t> order_;                    // its nonces, the oldest first
};

}  // namespace ringdist
