// Dials the processes that should be connected and are not, when it is time to. Control thread
// only.
#pragma once

#include <cstdint>

#include "control/groups.h"
#include "control/ledger.h"
#include "control/processes.h"
#include "control/reach.h"

namespace ringdist {

class ControlDialer {
 public:
  ControlDialer(ControlProcesses& processes, const ControlGroups& groups,
                const ControlLedger& ledger, ControlReach& reach)
      : processes_(processes), groups_(groups), ledger_(ledger), reach_(reach) {}

  // Whether it dials now: as of ControlLine::may_dial().
  void want(uint64_t id, LinkKind kind, bool first, TimePoint now);
  // All that the group needs of this process. `ends`: it is about to say goodbye, which must reach
  // other hosts: it waits for nobody to dial first.
  void keep_linked(const ControlGroup& group, TimePoint now, bool ends = false);

 private:
  ControlProcesses& processes_;
  const ControlGroups& groups_;
  const ControlLedger& ledger_;
  ControlReach& reach_;
};

}  // namespace ringdist
