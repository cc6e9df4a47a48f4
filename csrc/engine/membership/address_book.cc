#include "engine/membership/address_book.h"

namespace ringdist {

// A process that was once verified to share this host always does.
void AddressBook::add(const GroupAdvertisement::Member& process, bool is_same_host) {
  std::lock_guard lock(mutex_);
  Address& address = addresses_[process.process];
  if (!address.where.empty() && !is_same_host) return;
  address = {is_same_host ? PeerAddress{process.process, LinkKind::kLocal, process.unix_name}
                          : PeerAddress{process.process, LinkKind::kTcp, process.tcp_address},
             process.where};
}

void AddressBook::add(const ResolvedGroup& found) {
  const Topology& topology = found.membership.topology;
  for (const ControlMember& one : found.processes)
    add(GroupAdvertisement::Member::of(one), topology.same_host(found.membership.rank, one.rank));
}

std::optional<PeerAddress> AddressBook::find(ProcessId process) const {
  std::lock_guard lock(mutex_);
  const auto known = addresses_.find(process);
  return known == addresses_.end() ? std::nullopt : std::optional(known->second.address_of);
}

std::map<ProcessId, PeerAddress> AddressBook::all() const {
  std::lock_guard lock(mutex_);
  std::map<ProcessId, PeerAddress> out;
  for (const auto& [process, address] : addresses_) out.emplace(process, address.address_of);
  return out;
}

std::string AddressBook::where(ProcessId process) const {
  std::lock_guard lock(mutex_);
  const auto known = addresses_.find(process);
  return known == addresses_.end() ? "" : known->second.where;
}

}  // namespace ringdist
