// Formation of a group that belongs to another of the same ranks: all but its name is the parent's,
// and that follows from the parent's, so nothing is asked of the store.
#pragma once

#include <memory>
#include <string>

#include "engine/communicator_options.h"
#include "engine/formation.h"

namespace ringdist {

class SiblingFormation final : public Formation {
 public:
  // The `which`th sibling, from 0, of that suffix.
  SiblingFormation(std::shared_ptr<Context> context, const CommunicatorOptions& options,
                   std::shared_ptr<const Formation> parent, std::string suffix, uint64_t which);

 private:
  Result<FoundGroup> find() override;
  Error reach(FoundGroup&) override { return {}; }  // as the parent's are

  const std::shared_ptr<const Formation> parent_;
  const std::string suffix_;
  const uint64_t which_;
};

}  // namespace ringdist
