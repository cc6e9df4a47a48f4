// Who is connected to whom in one group. Inside a host: everyone with everyone. Between hosts: host
// h with the hosts h +- 2^k (mod H), so that a notice passes few hops, each pair through the two
// lowest live processes of each host, its *representatives*, first to first and second to second;
// the next process steps in when one is gone. Pure functions of the member list and of who is gone.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "control/control_member.h"

namespace ringdist {

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

}  // namespace ringdist
