// Connections by the peer that they lead to: everybody's tick asks for each peer's. Owned by
// ConnectionManager; control thread only; no locks.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "control/control_connection.h"

namespace ringdist {

class ConnectionIndex {
 public:
  // It is known now whom a connection leads to; once.
  void lead_to(uint64_t peer, ControlConnection& connection) {
    connections_[peer].push_back(&connection);
    connection.peer = peer;
  }
  // Before it is freed.
  void forget(const ControlConnection& connection) {
    const auto known = connections_.find(connection.peer);
    if (known == connections_.end()) return;
    std::erase(known->second, &connection);
    if (known->second.empty()) connections_.erase(known);
  }
  // The oldest first.
  std::span<ControlConnection* const> to(uint64_t peer) const {
    const auto known = connections_.find(peer);
    if (known == connections_.end()) return {};
    return known->second;
  }

 private:
  std::map<uint64_t, std::vector<ControlConnection*>> connections_;
};

}  // namespace ringdist
