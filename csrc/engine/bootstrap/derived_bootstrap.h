// Formation of a group of another one's ranks, all or some: all but its name is the parent's, and
// that follows from the parent's, so nothing is asked of the store.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/bootstrap/communicator_options.h"
#include "engine/bootstrap/group_bootstrap.h"

namespace ringdist {

class DerivedBootstrap final : public GroupBootstrap {
 public:
  // The `which`th sibling, from 0, of that suffix. `ranks`: those of the parent that it has, in
  // their order, or all. One of some goes its own way: it can have later generations.
  DerivedBootstrap(std::shared_ptr<Context> context, const CommunicatorOptions& options,
                   std::shared_ptr<const GroupBootstrap> parent, std::string suffix, uint64_t which,
                   std::vector<int> ranks = {});

 private:
  Result<ResolvedGroup> resolve() override;
  Error connect_members(ResolvedGroup&) override { return {}; }  // as the parent's are
  bool has_generations() const override { return !ranks_.empty(); }

  const std::shared_ptr<const GroupBootstrap> parent_;
  const std::string suffix_;
  const uint64_t which_;
  const std::vector<int> ranks_;
};

// Formation of a group's next generation: who its members are was decided by those of the one
// before (membership/paxos/), and how they are reached is known. Nothing is asked of the store.
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
