// Failure detector: finds losses that no event reports. These are processes and hosts that fall
// silent, processes with a control socket that nobody serves any more, and processes that announced
// their end and have not come back. Deaths that the kernel reports (pidfd) do not pass it:
// ControlPlane::on_process_ended handles them. Control thread only.
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

// Checks hosts and processes at each tick and reports findings to its delegate. A process that had
// announced its end has left. So has one that never had a link to this process, if others of its
// host have left. Any other is lost.
class FailureDetector {
 public:
  // Receives findings. It may change the peers and the history meanwhile.
  struct Delegate {
    virtual ~Delegate() = default;
    virtual void learn_lost(uint64_t id, const std::string& cause) = 0;
    virtual void learn_left(uint64_t id) = 0;
  };

  // The references must outlive the object.
  FailureDetector(Duration peer_timeout, ControlPeerTable& processes, ControlGroupTable& groups,
                  const ControlHistory& history, const FormationBarrier& formation_barrier,
                  const ConnectionView& connections, const ConnectionDemand& demand,
                  ControlDialer& dialer, Delegate& delegate)
      : peer_timeout_(peer_timeout),
        processes_(processes),
        groups_(groups),
        history_(history),
        formation_barrier_(formation_barrier),
        connections_view_(connections),
        demand_(demand),
        dialer_(dialer),
        delegate_(delegate) {}

  // Checks the hosts that the group is linked to from here.
  void check_hosts(ControlGroup& group, TimePoint now);
  // Checks all peers.
  void check_processes(TimePoint now);
  // Compensates for a pause of this thread, as after a stop of the process or a suspend of the
  // machine: the others were not silent then. `late` is the time beyond the intended sleep.
  void discount_own_pause(Duration late, TimePoint now);

  // Returns the silence after which a process is suspect. Being suspect ends nothing: it only marks
  // a process in reports and causes further dials.
  Duration suspect_after() const;

 private:
  void check_host(ControlGroup& group, int host, TimePoint now);
  // Returns true if the process has formed a group with this one, and so listens until its end.
  bool has_listened(uint64_t id) const;
  // Returns true if another process of its host has left in good order.
  bool host_leaves(uint64_t id) const;
  // Checks one link. Returns true if the peer was reported.
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
