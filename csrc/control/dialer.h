// Dials the processes that should be connected and are not, when it is time to. Control thread
// only.
#pragma once

#include <cstdint>

#include "control/connection_view.h"
#include "control/control_groups.h"
#include "control/control_history.h"
#include "control/control_peers.h"

namespace ringdist {

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
