// Formation of a group's next generation: who its members are was decided by those of the one
// before (membership/paxos/), and how they are reached is known. Nothing is asked of the store.
#pragma once

#include <memory>

#include "engine/communicator_options.h"
#include "engine/group_bootstrap.h"

namespace ringdist {

class AgreedBootstrap final : public GroupBootstrap {
 public:
  AgreedBootstrap(std::shared_ptr<Context> context, const CommunicatorOptions& options,
                  ResolvedGroup found)
      : GroupBootstrap(std::move(context), options.name, options.rank, options.size,
                       Clock::now() + options.timeout),
        found_(std::move(found)) {}

 private:
  Result<ResolvedGroup> resolve() override { return found_; }
  Error connect_members(ResolvedGroup&) override { return {}; }  // as in the generation before
  bool has_generations() const override { return true; }

  const ResolvedGroup found_;
};

}  // namespace ringdist
