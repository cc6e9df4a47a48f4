// Whom this process needs, and so which connections it keeps. Control thread only.
#pragma once

#include <cstdint>

#include "control/control_connection.h"
#include "control/control_groups.h"
#include "control/control_history.h"
#include "control/control_peers.h"

namespace ringdist {

class ConnectionDemand {
 public:
  ConnectionDemand(uint64_t id, ControlPeerTable& processes, const ControlGroupTable& groups,
                   const ConnectionView& reach, ConnectionSender& voice)
      : id_(id), processes_(processes), groups_(groups), connections_view_(reach), sender_(voice) {}

  // Of this process somebody would miss it, so that its end must be noticed.
  bool is_monitored(uint64_t process) const;
  // Or it has yet to hear that a group was left.
  bool needed(uint64_t process) const { return is_monitored(process) || groups_.has(process); }

  // Tells peers which connections we need, closes those that nobody does, and forgets whom they led
  // to. The lower id closes; until then either side may change its mind.
  void update_connections();
  // It is gone: its connections close, once what was sent on them has left.
  void drop(uint64_t process);

 private:
  void update_connections(ControlConnection& connection);

  const uint64_t id_;
  ControlPeerTable& processes_;
  const ControlGroupTable& groups_;
  const ConnectionView& connections_view_;
  ConnectionSender& sender_;
};

// Dials the processes that should be connected and are not, when it is time to. Control thread
// only.
class ControlDialer {
 public:
  ControlDialer(ControlPeerTable& processes, const ControlGroupTable& groups,
                const ControlHistory& ledger, ConnectionView& reach)
      : processes_(processes), groups_(groups), history_(ledger), connections_view_(reach) {}

  // Whether it dials now: as of PeerLink::may_dial().
  void want(uint64_t id, LinkKind kind, bool first, TimePoint now);
  // All that the group needs of this process. `ends`: it is about to say goodbye, which must reach
  // other hosts: it waits for nobody to dial first.
  void keep_linked(const ControlGroup& group, TimePoint now, bool ends = false);

 private:
  ControlPeerTable& processes_;
  const ControlGroupTable& groups_;
  const ControlHistory& history_;
  ConnectionView& connections_view_;
};

}  // namespace ringdist
