// Who is gone. A death or a departure counts once: it is remembered, passed on, told to the owner,
// and the process is dropped. Control thread only.
#pragma once

#include <cstdint>
#include <string>

#include "control/connection_demand.h"
#include "control/control_delegate.h"
#include "control/control_groups.h"
#include "control/control_history.h"
#include "control/control_peers.h"
#include "control/exception_guard.h"
#include "control/failure_detector.h"
#include "control/gossip.h"
#include "control/tick_timer.h"

namespace ringdist {

class DepartureHandler final : public FailureDetector::Delegate {
 public:
  DepartureHandler(uint64_t id, ControlHistory& ledger, const ControlGroupTable& groups,
                   const ControlPeerTable& processes, ConnectionDemand& needs,
                   ControlGossip& gossip, TickTimer& pace, ControlDelegate& events,
                   ExceptionGuard& guard)
      : id_(id),
        history_(ledger),
        groups_(groups),
        processes_(processes),
        demand_(needs),
        gossip_(gossip),
        timer_(pace),
        events_(events),
        guard_(guard) {}

  // What throws has learned nothing. `from`: who told it, and need not be told.
  void learn_lost(uint64_t id, const std::string& cause, const ControlConnection* from);
  void learn_left(uint64_t id, const ControlConnection* from);
  // FailureDetector::Delegate
  void learn_lost(uint64_t id, const std::string& cause) override {
    learn_lost(id, cause, nullptr);
  }
  void learn_left(uint64_t id) override { learn_left(id, nullptr); }

  // Of all that it has not heard of yet: where it throws, again at the next tick.
  void report_departures();

 private:
  void process_departure(uint64_t id);

  const uint64_t id_;
  ControlHistory& history_;
  const ControlGroupTable& groups_;
  const ControlPeerTable& processes_;
  ConnectionDemand& demand_;
  ControlGossip& gossip_;
  TickTimer& timer_;
  ControlDelegate& events_;
  ExceptionGuard& guard_;
};

}  // namespace ringdist
