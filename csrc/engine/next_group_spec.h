// What the group of a decided generation is to be made of. A value.
#pragma once

#include <memory>

#include "engine/communicator_options.h"
#include "engine/context.h"
#include "engine/group_bootstrap.h"

namespace ringdist {

struct NextGroupSpec {
  // Where `needs_rendezvous`: of it only what was decided, which is the nonce and the members.
  ResolvedGroup found;
  bool needs_rendezvous = false;  // the members find each other by the store
  int survivor_count = 0;         // the first so many were members before; the others come now

  std::shared_ptr<GroupBootstrap> formation(std::shared_ptr<Context> context,
                                            const CommunicatorOptions& options) const;
};

}  // namespace ringdist
