// What lives in a group besides its ops, and agrees with its like on the other ranks by letters:
// messages that belong to no op, of any size, with no deadline. They arrive in the order in which
// one rank sent them to another.
//
// Every call comes with the lane's driver token held.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/buffers.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/topology.h"

namespace ringdist {

// What a group does for a GroupService.
class GroupServiceDelegate {
 public:
  virtual ~GroupServiceDelegate() = default;

  virtual const Topology& topology() const = 0;
  // "rank 3 (pid 123 on host x)"
  virtual std::string describe_rank(int rank) const = 0;
  // To another rank. Until the group ends; what comes later is dropped.
  virtual void send_service_message(int rank, std::vector<std::byte> letter) = 0;
  // Whether something of it needs all members, as an op does: then the group fails when one is
  // lost or has left, maybe at once, and a lane does not sleep long. At first nothing does.
  virtual void set_needs_all_members(bool awaits) = 0;
  // Ends the group, on all ranks.
  virtual void fail(const Error& cause) = 0;
};

class GroupService {
 public:
  virtual ~GroupService() = default;

  // The members are known. `post` lives until end().
  virtual void begin(GroupServiceDelegate& post) = 0;
  // What it throws, or an Error, ends the group on all ranks.
  virtual Error on_service_message(int rank, ConstBytes letter) = 0;
  // Every few tens of milliseconds, while letters are awaited. As of on_service_message().
  virtual Error tick(TimePoint now) = 0;
  // The group has failed or was destroyed, maybe before it began. May come again; the first cause
  // counts.
  virtual void end(const Error& cause) noexcept = 0;
  // Since when something of it waits for members, and for whom, in words; empty: for nobody.
  virtual std::pair<TimePoint, std::string> waiting_for() const = 0;
  // In lines, each begun with a line break; for dumps.
  virtual std::string dump() const = 0;
};

}  // namespace ringdist
