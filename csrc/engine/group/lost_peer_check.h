// What a group's ops lack of members that died, left or cannot be reached: whether it can go on,
// and if not, why. It only asks; the Group acts on the answer.
//
// Every call comes with the lane's driver token held.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/group/collectives.h"
#include "engine/group/peer_table.h"
#include "engine/group/point_to_point.h"
#include "engine/group/service_channel.h"

namespace ringdist {

class LostPeerCheck {
 public:
  // A broken connection is a symptom, and what was sent before it broke is still on its way: for so
  // long somebody may say more, or an op may end.
  static constexpr Duration kGrace = std::chrono::milliseconds(500);

  LostPeerCheck(const PeerTable& peers, const Collectives& collectives,
                const PointToPoint& point_to_point, const ServiceChannel& letters)
      : peers_(peers),
        collectives_(collectives),
        point_to_point_(point_to_point),
        service_channel_(letters) {}

  // The death of a member of which an op lacks something, or any while letters are awaited. What it
  // had sent has been read: so if its part of an op was done, nothing of that is missing here. Of
  // an op on a device nobody knows: it needs all members until it has ended.
  Error lost_peer_error() const;
  // A member that is gone in good order took part in ops up to a number; one beyond it can never
  // end.
  struct Departure {
    uint64_t first = 0;  // that cannot end
    Error cause;
  };
  std::optional<Departure> departure_before(uint64_t number) const;
  // A connection that broke a while ago, and nobody has said why, or ops wait in vain for what its
  // member had sent.
  Error broken_link_error(TimePoint now) const;
  // A send or a receive, not on a device, whose other end is gone for a while; awaited letters, if
  // any member is.
  Error stranded_op_error(TimePoint now) const;

 private:
  bool lacks(int peer) const;
  bool waits_in_vain(int peer, TimePoint now) const;
  Error departure(TimePoint now) const;
  bool waits_for_leaver(const Op& op, const OpExecution* run, TimePoint now) const;

  const PeerTable& peers_;
  const Collectives& collectives_;
  const PointToPoint& point_to_point_;
  const ServiceChannel& service_channel_;
};

}  // namespace ringdist
