// Connection demand: decides which connections this process needs, and dials those that are
// missing. Control thread only.
#pragma once

#include <cstdint>

#include "control/control_connection.h"
#include "control/control_groups.h"
#include "control/control_history.h"
#include "control/control_peers.h"

namespace ringdist {

// Decides which processes this one needs, and closes connections that neither side needs.
class ConnectionDemand {
 public:
  ConnectionDemand(uint64_t id, ControlPeerTable& processes, const ControlGroupTable& groups,
                   const ConnectionView& connections, ConnectionSender& sender)
      : id_(id),
        processes_(processes),
        groups_(groups),
        connections_view_(connections),
        sender_(sender) {}

  // Returns true if the end of the process must be noticed, because a group or a host proof needs
  // it.
  bool is_monitored(uint64_t process) const;
  // Returns true if its connections must stay. That includes a process that has yet to be notified
  // that a group was left.
  bool needed(uint64_t process) const { return is_monitored(process) || groups_.has(process); }

  // Notifies peers of changed needs, closes connections that no side needs, and forgets their
  // peers. The side with the lower id closes; until then either side may change its mind.
  void update_connections();
  // Closes the connections of a process that is gone, after their output has been sent.
  void drop(uint64_t process);

 private:
  // Does so for one connection.
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
                const ControlHistory& history, ConnectionView& connections)
      : processes_(processes), groups_(groups), history_(history), connections_view_(connections) {}

  // Records that a link is needed, and dials if PeerLink::may_dial(first) allows it.
  void want(uint64_t id, LinkKind kind, bool first, TimePoint now);
  // Does so for all links that the group needs of this process. With `ends` this process is about
  // to leave, which other hosts must learn from it. So it dials those at once, and local peers not
  // at all.
  void keep_linked(const ControlGroup& group, TimePoint now, bool ends = false);

 private:
  ControlPeerTable& processes_;
  const ControlGroupTable& groups_;
  const ControlHistory& history_;
  ConnectionView& connections_view_;
};

}  // namespace ringdist
