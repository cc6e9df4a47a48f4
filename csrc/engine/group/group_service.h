// Interface of a service: code in a group that exchanges messages of its own with its counterparts
// on the other ranks, outside of ops. Service messages have any size and no deadline. Messages from
// one rank to another arrive in order.
//
// Threads: the caller holds the lane's progress lock, in both directions.
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

// Functions of a group that a GroupService may call, from begin() to end().
class GroupServiceDelegate {
 public:
  virtual ~GroupServiceDelegate() = default;

  // Returns the hosts of the group's ranks.
  virtual const Topology& topology() const = 0;
  // Returns a description for messages, such as "rank 3 (pid 123 on host x)".
  virtual std::string describe_rank(int rank) const = 0;
  // Sends a message to another rank. Has no effect after the group has ended.
  virtual void send_service_message(int rank, std::vector<std::byte> message) = 0;
  // Declares whether the service currently needs all members, as an op does; initially it does not.
  // While it does, the group fails when a member is lost or leaves, possibly within this call, and
  // the lane sleeps only briefly.
  virtual void set_needs_all_members(bool awaits) = 0;
  // Fails the group on all ranks.
  virtual void fail(const Error& cause) = 0;
};

// Implemented by the service. An exception or Error from its functions fails the group. Functions
// must not block.
class GroupService {
 public:
  virtual ~GroupService() = default;

  // Called first, when the members have been found. `post` is valid until end().
  virtual void begin(GroupServiceDelegate& post) = 0;
  // Processes a message from another rank. A returned Error or an exception fails the group on all
  // ranks.
  virtual Error on_service_message(int rank, ConstBytes message) = 0;
  // Called every few tens of milliseconds while the service needs all members. Errors as in
  // on_service_message().
  virtual Error tick(TimePoint now) = 0;
  // Called when the group has failed or was destroyed, possibly before begin(). A failed group
  // calls it again with each tick. Later calls must be ignored, since only the first cause counts.
  virtual void end(const Error& cause) noexcept = 0;
  // Returns what the service waits for, as text, and since when. The text is empty if it waits for
  // nothing.
  virtual std::pair<TimePoint, std::string> waiting_for() const = 0;
  // Returns text for dumps; each line starts with a line break.
  virtual std::string dump() const = 0;
};

}  // namespace ringdist
