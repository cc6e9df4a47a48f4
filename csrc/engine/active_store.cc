#include "engine/active_store.h"

namespace ringdist {

ActiveStore::ActiveStore(Context& context, const CommunicatorOptions& options)
    : context_(context),
      first_(options.unprefixed_store ? options.unprefixed_store : options.store),
      home_(options.store_server),
      store_(at("")) {}

std::shared_ptr<LazyStore> ActiveStore::at(const std::string& address) const {
  return std::make_shared<LazyStore>(
      [first = first_, home = home_, address]() -> Result<std::shared_ptr<Store>> {
        if (address.empty() && first) return first;
        if (address.empty() || !home) return Error(ErrorKind::kSystem, "the group has no store");
        return home->open(address);
      });
}

void ActiveStore::move_to(const std::string& address) {
  std::lock_guard lock(mutex_);
  if (address_ == address) return;
  address_ = address;
  store_ = at(address);
}

std::string ActiveStore::offer() const { return home_ ? home_->offer(context_.service_ip()) : ""; }

}  // namespace ringdist
