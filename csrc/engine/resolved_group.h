#pragma once

#include <vector>

#include "control/control_member.h"
#include "engine/group/group_descriptor.h"
#include "network/costs.h"

namespace ringdist {

// What a rank knows of its group once it has found it. A value.
struct ResolvedGroup {
  GroupDescriptor membership;
  std::vector<ControlMember> processes;  // by rank
  GroupCosts costs;                      // rank 0's

  // Of the members, by rank.
  std::vector<ContextId> contexts() const;

  // A group of some of its ranks, in that order, on the one that was `own` of them; it has no
  // nonce yet. All that is known of them stays.
  ResolvedGroup of(const std::vector<int>& ranks, int own) const;
};

}  // namespace ringdist
