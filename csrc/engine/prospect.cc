#include "engine/prospect.h"

#include <utility>

#include "engine/decided_formation.h"
#include "engine/store_formation.h"

namespace ringdist {

std::shared_ptr<Formation> Prospect::formation(std::shared_ptr<Context> context,
                                               const CommunicatorOptions& options) const {
  if (!anew) return std::make_shared<DecidedFormation>(std::move(context), options, found);
  return std::make_shared<StoreFormation>(
      std::move(context), options,
      StoreFormation::Decided{found.membership.nonce, found.contexts(), stay});
}

}  // namespace ringdist
