// AddressBook: addresses of the processes of a group's generations, members and newcomers. Any
// thread.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/thread_annotations.h"
#include "engine/bootstrap/group_bootstrap.h"
#include "engine/membership/group_advertisement.h"
#include "membership/membership_transport.h"

namespace ringdist {

// Maps processes to the addresses of their control planes. Addresses are never removed.
class AddressBook {
 public:
  // Adds a process, or replaces its addresses. `is_same_host` is true if it was verified that the
  // process shares this kernel; then its AF_UNIX socket is used. A verified entry is replaced only
  // by a verified one.
  void add(const GroupAdvertisement::Member& process, bool is_same_host);
  // Adds all members of a group, and sets the address of this process.
  void add(const ResolvedGroup& found);
  // Sets the TCP address at which this process listens. Its connections to other hosts come from
  // that ip, by which the others recognize it.
  void set_own(const std::string& tcp_address);

  // Returns the address of a process; nothing if it has none here.
  std::optional<PeerAddress> find(ProcessId process) const;
  std::map<ProcessId, PeerAddress> all() const;
  // Returns "pid 123 on host x"; "" if the process has no address here.
  std::string where(ProcessId process) const;

 private:
  struct Address {
    GroupAdvertisement::Member of;
    bool is_same_host = false;
  };
  PeerAddress peer_address(const Address& address) const RINGDIST_REQUIRES(mutex_);

  mutable std::mutex mutex_;
  std::map<ProcessId, Address> addresses_ RINGDIST_GUARDED_BY(mutex_);
  std::string own_ip_ RINGDIST_GUARDED_BY(mutex_);  // empty until it is set
};

}  // namespace ringdist
