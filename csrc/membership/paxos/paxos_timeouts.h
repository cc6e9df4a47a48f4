// How long members wait for each other.
#pragma once

#include "base/clock.h"

namespace ringdist {

struct PaxosTimeouts {
  // Who has not answered for so long, is given up: RINGDIST_PEER_TIMEOUT.
  Duration silence = std::chrono::seconds(10);
  // The same of one of whom the control plane had heard nothing for that long before.
  Duration grace = Milliseconds(500);
  Duration resend = Milliseconds(100);
  // The lowest rank proposes at once, each further one so much later.
  Duration step = Milliseconds(20);
  // For the proposer of a ballot that was promised, before another one proposes.
  Duration patience = Milliseconds(500);
  // As `silence`, of one that was given up: a kernel may have reported its death, and that is on
  // its way.
  Duration word = Milliseconds(50);
};

}  // namespace ringdist
