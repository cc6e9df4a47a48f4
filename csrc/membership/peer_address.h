#pragma once

#include <string>

#include "control/control_connection.h"
#include "membership/paxos/decision.h"

namespace ringdist {

// Another process, and where its control plane listens.
struct PeerAddress {
  ProcessId process = 0;
  LinkKind kind = LinkKind::kTcp;  // kLocal: of this host
  std::string address;

  bool operator==(const PeerAddress&) const = default;
};

}  // namespace ringdist
