// Who a group consists of, as one of its ranks knows it. A value: settled before there is a Group,
// and never changed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/topology.h"
#include "transport/transport.h"

namespace ringdist {

struct GroupMember {
  ContextId context = 0;
  Transport* transport = nullptr;  // null: ourselves, in a group of one
  std::string where;               // "pid 123 on host x", for messages
};

struct GroupDescriptor {
  uint64_t nonce = 0;  // names the group: the same on all ranks, and no other group's
  uint32_t generation = 0;
  int rank = 0;                      // ours
  std::vector<GroupMember> members;  // by rank
  Topology topology;                 // the same on all ranks
  std::string cost_source;           // costs, for dumps: "the built-in costs"

  int size() const { return static_cast<int>(members.size()); }
};

// Of a group of the same ranks that belongs to `parent`: the `which`th, from 0, that is called
// `suffix`. All ranks work it out alike, without a word between them.
uint64_t derived_nonce(const GroupDescriptor& parent, std::string_view suffix, uint64_t which);

}  // namespace ringdist
