// Groups of the control plane: their members, the links that their members need, and how far each
// group has formed. Control thread only; no locks.
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

// A rank of a group, with the addresses of its process, as its rank info and the host proof give
// them. Several ranks may share a Context.
struct ControlMember {
  int rank = -1;
  uint64_t context_id = 0;
  int host = 0;  // index in the group's topology
  std::string unix_name;
  std::string tcp_address;
  int pid = 0;  // for messages only
  std::string host_name;
};

// Defines which processes of a group connect to each other. Inside a host each process connects to
// all others. Host h links to the hosts h +- 2^k (mod H), so that a notice passes few hops.
//
// Each pair of linked hosts uses the two lowest live processes of either host, its
// *representatives*: first to first and second to second. The next process steps in when one is
// gone. The result depends only on the member list and on the processes that have departed.
class LinkTopology {
 public:
  // Returns true if a process is lost or has left.
  using HasDeparted = std::function<bool(uint64_t)>;

  // `my_context` and `my_rank` are those of this process, which must be a member.
  LinkTopology(uint64_t my_context, int my_rank, std::vector<ControlMember> members);

  bool has(uint64_t context_id) const { return processes_.contains(context_id); }
  // Returns the lowest rank of a process, which stands for it in messages and orders.
  const ControlMember& member(uint64_t context_id) const { return processes_.at(context_id); }
  const ControlMember& self() const { return member(my_context_); }
  const std::map<uint64_t, ControlMember>& processes() const { return processes_; }

  // Returns the other processes of this host, by rank.
  std::vector<uint64_t> local_peers() const;

  // Returns the hosts that this one is linked to.
  const std::vector<int>& neighbours() const { return neighbours_; }
  const std::vector<uint64_t>& processes_of(int host) const { return hosts_.at(host); }
  // Returns true if this process is a representative of its host.
  bool representative(const HasDeparted& departed) const;
  // Returns the processes of a neighbour host that this process is linked to; none unless it is a
  // representative.
  std::vector<uint64_t> links_to(int host, const HasDeparted& departed) const;

  // Returns true if this process dials `peer`, rather than the reverse.
  bool dials_first(uint64_t peer) const;
  int my_host() const { return my_host_; }
  size_t host_count() const { return hosts_.size(); }

 private:
  // Returns the first two processes of the host that have not departed, by rank; fewer if there are
  // fewer.
  std::vector<uint64_t> representatives(int host, const HasDeparted& departed) const;

  uint64_t my_context_;
  int my_host_ = 0;
  std::map<uint64_t, ControlMember> processes_;
  std::map<int, std::vector<uint64_t>> hosts_;  // processes of each host, by rank
  std::vector<int> neighbours_;
};

// A group of this process, from connect_group() until it is forgotten.
struct ControlGroup {
  enum class State : uint8_t {
    kConnecting,  // links of this process are still missing
    // All links that this process needs were up once. From then on the silence of hosts counts.
    kConnected,
    // All ranks of this process have left. The group stays until the others have been notified.
    kLeft,
  };

  explicit ControlGroup(LinkTopology members) : roster(std::move(members)) {}
  State state() const {
    return ranks.empty() ? State::kLeft : connected ? State::kConnected : State::kConnecting;
  }
  bool left() const { return state() == State::kLeft; }
  // Enters kConnected.
  void connect(TimePoint now) {
    watched_since = now;
    connected = true;
  }

  LinkTopology roster;
  std::set<int> ranks;     // ranks of this process
  bool connected = false;  // stays true after it was left
  bool formed = false;     // every member has found all others (set by ControlGossip::formed())
  bool representative = false;             // this process was one at the last check
  std::optional<TimePoint> watched_since;  // silence of hosts counts from this time on
  // By neighbour host: when anything last came from it, also from processes that are gone.
  std::map<int, TimePoint> heard;
  TimePoint left_at{};         // when the last rank left
  std::map<int, size_t> scan;  // by neighbour host: next process to try when it is silent
};

// All groups of this process by nonce, and the latest ones that were forgotten.
class ControlGroupTable {
 public:
  // Adds rank `rank` of process `id`, which is this one, to the group. `members` are read only if
  // the table does not have the group. The result is valid until the group is forgotten.
  ControlGroup& join(uint64_t nonce, uint64_t id, int rank,
                     const std::vector<ControlMember>& members);
  // Removes a rank. Returns true if that was the last rank of this process.
  bool leave(uint64_t nonce, int rank, TimePoint now);
  // Forgets groups that were left, once `heard` returns true or a minute has passed. `heard`
  // returns true if every member has been notified. Returns the nonces of the forgotten groups.
  std::vector<uint64_t> forget_left(
      const std::function<bool(uint64_t nonce, const ControlGroup&)>& heard, TimePoint now);

  // Returns true if the group is one of the last 256 that were forgotten after every member had
  // formed it or departed, and `process` was a member.
  bool over(uint64_t nonce, uint64_t process) const;

  // Returns the group, or null. The pointer is valid until the group is forgotten.
  ControlGroup* find(uint64_t nonce);
  std::map<uint64_t, ControlGroup>& all() { return groups_; }
  const std::map<uint64_t, ControlGroup>& all() const { return groups_; }

  // Returns the process as some group lists it, or null if none does. Valid until that group is
  // forgotten.
  const ControlMember* member(uint64_t id) const;
  // Returns true if a group that was not left contains the process.
  bool is_monitored(uint64_t id) const;
  // Returns true if any group contains the process.
  bool has(uint64_t id) const { return member(id) != nullptr; }
  // Address to dial for a process, and the group to name in the hello. Empty and 0 if no group has
  // the process. `source` is the ip at which this process listens for that group, since its members
  // compare it over TCP.
  struct Address {
    std::string address;
    uint64_t nonce = 0;
    std::string source = {};
  };
  Address address_of(uint64_t id, LinkKind kind) const;

  // Compensates for a pause of this thread, during which no host was silent.
  void discount_pause(Duration pause, TimePoint now);

 private:
  std::map<uint64_t, ControlGroup> groups_;
  struct ForgottenGroup {
    uint64_t nonce;
    std::vector<uint64_t> processes;
  };
  std::deque<ForgottenGroup> over_;  // oldest first
};

// Records which processes have found all others of a group. This is the last phase of a group's
// formation: each member announces that it has connected, and connect_group() returns on no rank
// before all have. So a process may end after its first ops and take the store with it, since no
// member looks for others any more.
//
// Control thread only; no locks.
class FormationBarrier {
 public:
  // Adds processes and returns those that are new. Others may announce a group before this process
  // has it. Of groups for which `ours` returns false, the oldest is forgotten when there are many.
  // After an exception a part of them may be recorded.
  std::vector<uint64_t> learn(uint64_t nonce, const std::vector<uint64_t>& processes,
                              const std::function<bool(uint64_t nonce)>& ours);
  void forget(uint64_t nonce);

  // Returns true if that process has found all others of the group.
  bool has(uint64_t nonce, uint64_t process) const;
  // Returns all processes that have.
  std::vector<uint64_t> of(uint64_t nonce) const;

 private:
  // Returns the processes of a group, for which an entry is created if there is none.
  std::set<uint64_t>& enter(uint64_t nonce, const std::function<bool(uint64_t nonce)>& ours);

  std::map<uint64_t, std::set<uint64_t>> known_;  // by nonce
  std::deque<uint64_t> order_;                    // the same nonces, oldest first
};

}  // namespace ringdist
