#include "engine/membership/address_book.h"

#include "os/socket.h"

namespace ringdist {

// A process that was once verified to share this host always does.
void AddressBook::add(const GroupAdvertisement::Member& process, bool is_same_host) {
  std::lock_guard lock(mutex_);
  Address& address = addresses_[process.process];
  if (address.is_same_host && !is_same_host) return;
  address = {process, is_same_host};
}

void AddressBook::add(const ResolvedGroup& found) {
  const Topology& topology = found.membership.topology;
  for (const ControlMember& one : found.processes)
    add(GroupAdvertisement::Member::of(one), topology.same_host(found.membership.rank, one.rank));
  if (!found.processes.empty())
    set_own(found.processes[static_cast<size_t>(found.membership.rank)].tcp_address);
}

void AddressBook::set_own(const std::string& tcp_address) {
  std::lock_guard lock(mutex_);
  own_ip_ = without_port(tcp_address);
}

PeerAddress AddressBook::peer_address(const Address& address) const {
  return {address.of.process, address.is_same_host ? LinkKind::kLocal : LinkKind::kTcp,
          address.of.unix_name, address.of.tcp_address, own_ip_};
}

std::optional<PeerAddress> AddressBook::find(ProcessId process) const {
  std::lock_guard lock(mutex_);
  const auto known = addresses_.find(process);
  return known == addresses_.end() ? std::nullopt : std::optional(peer_address(known->second));
}

std::map<ProcessId, PeerAddress> AddressBook::all() const {
  std::lock_guard lock(mutex_);
  std::map<ProcessId, PeerAddress> out;
  for (const auto& [process, address] : addresses_) out.emplace(process, peer_address(address));
  return out;
}

std::string AddressBook::where(ProcessId process) const {
  std::lock_guard lock(mutex_);
  const auto known = addresses_.find(process);
  return known == addresses_.end() ? "" : known->second.of.where;
}

}  // namespace ringdist
