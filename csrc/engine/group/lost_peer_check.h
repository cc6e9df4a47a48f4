// Determines whether a group can go on after members were lost, have left or cannot be reached. Its
// functions return an Error if an op needs something that will not arrive. They only read; the
// Group acts on the result.
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/group/collectives.h"
#include "engine/group/peer_table.h"
#include "engine/group/point_to_point.h"
#include "engine/group/service_channel.h"

namespace ringdist {

// The arguments of the constructor must outlive this object.
class LostPeerCheck {
 public:
  // Time to wait before a broken connection or a departure counts as a failure. A broken connection
  // is only a symptom, and data sent before may still be in flight. Meanwhile a notice may give the
  // cause, or the op may end.
  static constexpr Duration kGrace = std::chrono::milliseconds(500);

  LostPeerCheck(const PeerTable& peers, const Collectives& collectives,
                const PointToPoint& point_to_point, const ServiceChannel& service_channel)
      : peers_(peers),
        collectives_(collectives),
        point_to_point_(point_to_point),
        service_channel_(service_channel) {}

  // Returns the loss of a member if an op needs something from it, or if the service needs all
  // members. Everything that a lost member sent has been read, so an op that it completed misses
  // nothing. For an op on a device this cannot be determined: it needs all members until it has
  // ended.
  Error lost_peer_error() const;
  // A departure in good order: the member took part in ops up to a number, and later ones can never
  // end.
  struct Departure {
    uint64_t first = 0;  // first op that cannot end
    Error cause;
  };
  // Returns the departure, if any, because of which op `number` cannot end.
  std::optional<Departure> departure_before(uint64_t number) const;
  // Returns an Error if a connection broke at least kGrace ago without a reported reason, or if ops
  // wait in vain for what its member had sent.
  Error broken_link_error(TimePoint now) const;
  // Returns an Error for a send or receive on the host that waits for a rank that departed at least
  // kGrace ago. If the service needs all members, any departed member counts.
  Error stranded_op_error(TimePoint now) const;

 private:
  // Returns true if an op or the service needs the peer.
  bool lacks(int peer) const;
  // Returns true if data is missing of an op that the peer took part in. The peer must have
  // announced its last op.
  bool waits_in_vain(int peer, TimePoint now) const;
  // Returns the departure of any member at least kGrace ago, or success.
  Error departure(TimePoint now) const;
  // Returns true if the other end of a send or receive has departed and there is no progress.
  bool waits_for_leaver(const Op& op, const OpExecution* run, TimePoint now) const;

  const PeerTable& peers_;
  const Collectives& collectives_;
  const PointToPoint& point_to_point_;
  const ServiceChannel& service_channel_;
};

}  // namespace ringdist
