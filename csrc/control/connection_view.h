// Whom this process is connected to: what those who judge, dial and answer need of
// ConnectionManager.
#pragma once

#include <cstdint>
#include <string>

#include "control/control_connection.h"

namespace ringdist {

class ConnectionView {
 public:
  virtual ~ConnectionView() = default;
  // A connection is there, or on its way.
  virtual bool is_connecting_or_open(uint64_t peer, LinkKind kind) const = 0;
  // The other side has it, and may hold it until it knows the group.
  virtual bool reached(uint64_t peer, LinkKind kind) const = 0;
  // Both sides talk.
  virtual bool open(uint64_t peer, LinkKind kind) const = 0;
  virtual void dial(LinkKind kind, uint64_t peer, const std::string& address, uint64_t nonce) = 0;
};

}  // namespace ringdist
