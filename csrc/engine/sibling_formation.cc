#include "engine/sibling_formation.h"

#include <utility>

namespace ringdist {
namespace {

// How often it looks whether its time is over while the parent forms.
constexpr auto kLook = Milliseconds(10);

}  // namespace

SiblingFormation::SiblingFormation(std::shared_ptr<Context> context,
                                   const CommunicatorOptions& options,
                                   std::shared_ptr<const Formation> parent, std::string suffix,
                                   uint64_t which)
    : Formation(std::move(context), options.name, options.rank, options.size,
                Clock::now() + options.timeout),
      parent_(std::move(parent)),
      suffix_(std::move(suffix)),
      which_(which) {}

Result<FoundGroup> SiblingFormation::find() {
  while (parent_->outcome().wait_for(kLook) != std::future_status::ready) {
    if (patience().cancelled)
      return Error(ErrorKind::kAborted, "the group was destroyed while it looked for its members");
    if (patience().over(Clock::now()))
      return Error(ErrorKind::kTimeout,
                   "the members of the group that it belongs to were not found in time");
  }
  Result<FoundGroup> found = parent_->outcome().get();
  if (found.ok())
    found.value().membership.nonce = sibling_nonce(found.value().membership, suffix_, which_);
  return found;
}

}  // namespace ringdist
