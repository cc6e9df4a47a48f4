// Where the processes of a group's generations are, members and newcomers. Any thread.
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

class AddressBook {
 public:
  // How a process says where it is; `is_same_host`: it was seen to, and its kernel is ours.
  void add(const GroupAdvertisement::Member& process, bool is_same_host);
  // Of all members.
  void add(const ResolvedGroup& found);

  std::optional<PeerAddress> find(ProcessId process) const;
  std::map<ProcessId, PeerAddress> all() const;
  // "pid 123 on host x"; "" of one that is not known.
  std::string where(ProcessId process) const;

 private:
  struct Address {
    PeerAddress recipient;
    std::string where;
  };

  mutable std::mutex mutex_;
  std::map<ProcessId, Address> addresses_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist
