// Bootstraps that use no store: DerivedBootstrap for groups of another group's ranks, and
// AgreedBootstrap for later generations. Threads: as of GroupBootstrap.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/bootstrap/communicator_options.h"
#include "engine/bootstrap/group_bootstrap.h"

namespace ringdist {

// Bootstrap of a duplicate or subset of a parent group. Addresses and topology are the parent's.
// The nonce is derived from the parent's, so all ranks compute the same one.
class DerivedBootstrap final : public GroupBootstrap {
 public:
  // `which` counts the groups of that suffix, from 0. `ranks` are the parent's ranks that the new
  // group has, in the new order; empty means all. Only a group of some ranks has later generations
  // of its own; a duplicate ends with its parent.
  DerivedBootstrap(std::shared_ptr<Context> context, const CommunicatorOptions& options,
                   std::shared_ptr<const GroupBootstrap> parent, std::string suffix, uint64_t which,
                   std::vector<int> ranks = {});

 private:
  Result<ResolvedGroup> resolve() override;
  // The members are connected in the parent.
  Error connect_members(ResolvedGroup&) override { return {}; }
  bool has_generations() const override { return !ranks_.empty(); }

  const std::shared_ptr<const GroupBootstrap> parent_;
  const std::string suffix_;
  const uint64_t which_;          // number of the group among those of its suffix
  const std::vector<int> ranks_;  // empty: all
};

// Bootstrap of a group's next generation. The members of the generation before have agreed on its
// members (membership/paxos/), and their addresses and transports have been found already.
class AgreedBootstrap final : public GroupBootstrap {
 public:
  // `found` is the new group, with its nonce.
  AgreedBootstrap(std::shared_ptr<Context> context, const CommunicatorOptions& options,
                  ResolvedGroup found)
      : GroupBootstrap(std::move(context), options.name, options.rank, options.size,
                       Clock::now() + options.timeout),
        found_(std::move(found)) {}

 private:
  Result<ResolvedGroup> resolve() override { return found_; }
  // They were connected in the generation before.
  Error connect_members(ResolvedGroup&) override { return {}; }
  bool has_generations() const override { return true; }

  const ResolvedGroup found_;
};

}  // namespace ringdist
