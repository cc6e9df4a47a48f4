// Members of a group, as one of its ranks sees them. A value that is complete before the Group is
// made and never changes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/topology.h"
#include "transport/transport.h"

namespace ringdist {

// One rank of a group and how to reach it.
struct GroupMember {
  ContextId context = 0;
  Transport* transport = nullptr;  // null: this rank itself, in a group of one
  std::string where;               // for messages: "pid 123 on host x"
};

// All that a rank needs to make its Group.
struct GroupDescriptor {
  uint64_t nonce = 0;       // identifies the group: equal on all ranks, different from other groups
  uint32_t generation = 0;  // distinguishes successive memberships of a group
  int rank = 0;             // this rank
  std::vector<GroupMember> members;  // by rank
  Topology topology;                 // equal on all ranks
  std::string cost_source;  // source of the cost model, for dumps, such as "the built-in costs"

  int size() const { return static_cast<int>(members.size()); }
};

// Returns the nonce of a group of the same ranks that belongs to `parent`: number `which`, from 0,
// of those called `suffix`. All ranks compute the same value without communication. Never 0.
uint64_t derived_nonce(const GroupDescriptor& parent, std::string_view suffix, uint64_t which);

}  // namespace ringdist
