// Decides who is lost: processes and hosts that fall silent, processes whose sockets nobody serves
// any more, those that said they would end and did not come back. Control thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "control/connection_demand.h"
#include "control/control_connection.h"
#include "control/control_groups.h"
#include "control/control_history.h"
#include "control/control_peers.h"

namespace ringdist {

class FailureDetector {
 public:
  // What it finds out. It may change processes and the ledger.
  struct Delegate {
    virtual ~Delegate() = default;
    virtual void learn_lost(uint64_t id, const std::string& cause) = 0;
    virtual void learn_left(uint64_t id) = 0;
  };

  FailureDetector(Duration peer_timeout, ControlPeerTable& processes, ControlGroupTable& groups,
                  const ControlHistory& ledger, const FormationBarrier& arrivals,
                  const ConnectionView& reach, const ConnectionDemand& needs, ControlDialer& dialer,
                  Delegate& court)
      : peer_timeout_(peer_timeout),
        processes_(processes),
        groups_(groups),
        history_(ledger),
        formation_barrier_(arrivals),
        connections_view_(reach),
        demand_(needs),
        dialer_(dialer),
        delegate_(court) {}

  // The hosts that the group is linked to from here.
  void check_hosts(ControlGroup& group, TimePoint now);
  void check_processes(TimePoint now);
  // When this thread did not run (the process was stopped, the machine suspended) it is not the
  // others who were silent. `late`: beyond what it meant to sleep.
  void discount_own_pause(Duration late, TimePoint now);

  // After that silence a process is suspect, which changes nothing but words.
  Duration suspect_after() const;

 private:
  void check_host(ControlGroup& group, int host, TimePoint now);
  // It is known to have joined a group of ours, and so to listen until its end.
  bool has_listened(uint64_t id) const;
  // Somebody of its host has left in good order.
  bool host_leaves(uint64_t id) const;
  bool check_link(uint64_t id, ControlPeer& peer, LinkKind kind, TimePoint now);
  std::string name(uint64_t id) const;

  const Duration peer_timeout_;
  ControlPeerTable& processes_;
  ControlGroupTable& groups_;
  const ControlHistory& history_;
  const FormationBarrier& formation_barrier_;
  const ConnectionView& connections_view_;
  const ConnectionDemand& demand_;
  ControlDialer& dialer_;
  Delegate& delegate_;
};

}  // namespace ringdist
