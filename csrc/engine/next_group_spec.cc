#include "engine/next_group_spec.h"

#include <utility>

#include "engine/agreed_bootstrap.h"
#include "engine/store_bootstrap.h"

namespace ringdist {

std::shared_ptr<GroupBootstrap> NextGroupSpec::formation(std::shared_ptr<Context> context,
                                                         const CommunicatorOptions& options) const {
  if (!needs_rendezvous)
    return std::make_shared<AgreedBootstrap>(std::move(context), options, found);
  return std::make_shared<StoreBootstrap>(
      std::move(context), options,
      StoreBootstrap::Decided{found.membership.nonce, found.contexts(), survivor_count});
}

}  // namespace ringdist
