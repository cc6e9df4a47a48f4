// Formation of a group of another one's ranks, all or some: all but its name is the parent's, and
// that follows from the parent's, so nothing is asked of the store.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/communicator_options.h"
#include "engine/group_bootstrap.h"

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

}  // namespace ringdist
