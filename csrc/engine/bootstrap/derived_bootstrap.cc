#include "engine/bootstrap/derived_bootstrap.h"

#include <utility>

namespace ringdist {
namespace {

// Pause between checks whether the process shuts down while the parent forms.
constexpr auto kLook = Milliseconds(10);

}  // namespace

DerivedBootstrap::DerivedBootstrap(std::shared_ptr<Context> context,
                                   const CommunicatorOptions& options,
                                   std::shared_ptr<const GroupBootstrap> parent, std::string suffix,
                                   uint64_t which, std::vector<int> ranks)
    : GroupBootstrap(std::move(context), options.name, options.rank, options.size,
                     Clock::now() + options.timeout),
      parent_(std::move(parent)),
      suffix_(std::move(suffix)),
      which_(which),
      ranks_(std::move(ranks)) {}

// If the parent's bootstrap fails, so does this one, with the same error.
// Waits for the parent even after its own deadline or a cancellation. Other ranks may have the
// group already, and only its nonce, which depends on the parent's, allows this rank to notify
// them.
Result<ResolvedGroup> DerivedBootstrap::resolve() {
  while (parent_->outcome().wait_for(kLook) != std::future_status::ready)
    if (context().progress().stopped())
      return Error(ErrorKind::kAborted, "this process shut down while the group formed");
  Result<ResolvedGroup> found = parent_->outcome().get();
  if (!found.ok()) return found;
  const uint64_t nonce = derived_nonce(found.value().membership, suffix_, which_);
  if (!ranks_.empty()) found = found.value().of(ranks_, found.value().membership.rank);
  found.value().membership.nonce = nonce;
  return found;
}

}  // namespace ringdist
