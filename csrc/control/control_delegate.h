#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"
#include "control/control_connection.h"

namespace ringdist {

// What the control plane tells its owner: on the control thread, with no lock of its own held. They
// must return quickly (dump: within 500 ms) and must not call back, but for flood.
struct ControlDelegate {
  virtual ~ControlDelegate() = default;

  // A process died or fell silent (kPeerLost). It can be this process itself: others gave it up
  // while it was stopped. For each context either this or on_process_left, once.
  virtual void on_process_lost(uint64_t context_id, const Error& cause) = 0;
  // A process said goodbye or, if it said that it was about to end, has ended.
  virtual void on_process_left(uint64_t context_id) = 0;
  // A payload of another process, once.
  virtual void on_flood(std::span<const std::byte> payload) = 0;
  // Another process has dialed for letters, of which the control plane knows nothing but that they
  // are for this one, and inside a host from our user; `stream` may hold some already. Who takes
  // none closes it.
  virtual void on_letters(FramedSocket stream, const ControlHello& hello, LinkKind kind) = 0;
  // What the owner is doing, for a human.
  virtual std::string dump() = 0;
};

}  // namespace ringdist
