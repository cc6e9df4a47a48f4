// Timeouts of the consensus on a group's next generation.
#pragma once

#include "base/clock.h"

namespace ringdist {

struct PaxosTimeouts {
  // A voter that has not answered for this time is given up (RINGDIST_PEER_TIMEOUT).
  Duration reply_timeout = std::chrono::seconds(10);
  // The same, for a voter from which the control plane had received nothing for that long before.
  Duration grace = Milliseconds(500);
  Duration resend = Milliseconds(100);
  // The lowest rank proposes at once, each further rank this much later.
  Duration proposer_stagger = Milliseconds(20);
  // Another rank waits this long for the proposer of a ballot that was promised.
  Duration proposal_timeout = Milliseconds(500);
  // The reply timeout of a voter that was given up. A kernel may have reported its death, and that
  // notice may still be under way.
  Duration loss_report = Milliseconds(50);
};

}  // namespace ringdist
