// Whom this process needs, and so which connections it keeps. Control thread only.
#pragma once

#include <cstdint>

#include "control/connection_sender.h"
#include "control/connection_view.h"
#include "control/control_groups.h"
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

}  // namespace ringdist
