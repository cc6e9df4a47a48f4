// Who is gone. A death or a departure counts once: it is remembered, passed on, told to the owner,
// and the process is dropped. Control thread only.
#pragma once

#include <cstdint>
#include <string>

#include "control/events.h"
#include "control/gossip.h"
#include "control/groups.h"
#include "control/guard.h"
#include "control/judge.h"
#include "control/ledger.h"
#include "control/needs.h"
#include "control/pace.h"
#include "control/processes.h"

namespace ringdist {

class ControlFates final : public ControlJudge::Court {
 public:
  ControlFates(uint64_t id, ControlLedger& ledger, const ControlGroups& groups,
               const ControlProcesses& processes, ControlNeeds& needs, ControlGossip& gossip,
               ControlPace& pace, ControlEvents& events, ControlGuard& guard)
      : id_(id),
        ledger_(ledger),
        groups_(groups),
        processes_(processes),
        needs_(needs),
        gossip_(gossip),
        pace_(pace),
        events_(events),
        guard_(guard) {}

  // What throws has learned nothing. `from`: who told it, and need not be told.
  void learn_lost(uint64_t id, const std::string& cause, const ControlConnection* from);
  void learn_left(uint64_t id, const ControlConnection* from);
  // ControlJudge::Court
  void learn_lost(uint64_t id, const std::string& cause) override {
    learn_lost(id, cause, nullptr);
  }
  void learn_left(uint64_t id) override { learn_left(id, nullptr); }

  // Of all that it has not heard of yet: where it throws, again at the next tick.
  void tell_owner();

 private:
  void settle(uint64_t id);

  const uint64_t id_;
  ControlLedger& ledger_;
  const ControlGroups& groups_;
  const ControlProcesses& processes_;
  ControlNeeds& needs_;
  ControlGossip& gossip_;
  ControlPace& pace_;
  ControlEvents& events_;
  ControlGuard& guard_;
};

}  // namespace ringdist
