// Formation of a group's next generation: who its members are was decided by those of the one
// before (consensus/), and how they are reached is known. Nothing is asked of the store.
#pragma once

#include <memory>

#include "engine/communicator_options.h"
#include "engine/formation.h"

namespace ringdist {

class DecidedFormation final : public Formation {
 public:
  DecidedFormation(std::shared_ptr<Context> context, const CommunicatorOptions& options,
                   FoundGroup found)
      : Formation(std::move(context), options.name, options.rank, options.size,
                  Clock::now() + options.timeout),
        found_(std::move(found)) {}

 private:
  Result<FoundGroup> find() override { return found_; }
  Error reach(FoundGroup&) override { return {}; }  // as in the generation before
  bool has_generations() const override { return true; }

  const FoundGroup found_;
};

}  // namespace ringdist
