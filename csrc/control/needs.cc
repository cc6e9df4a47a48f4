#include "control/needs.h"

#include <algorithm>

#include "control/wire.h"

namespace ringdist {

bool ConnectionDemand::relied_on(uint64_t process) const {
  const ControlPeer* peer = processes_.find(process);
  return (peer != nullptr && peer->proven) || groups_.relied_on(process);
}

void ConnectionDemand::settle() {
  voice_.for_each([this](ControlConnection& connection) {
    if (connection.open()) settle(connection);
  });
  for (const uint64_t process : processes_.ids()) {
    const bool tried =
        std::ranges::any_of(kLinkKinds, [&](LinkKind kind) { return reach_.tried(process, kind); });
    if (!tried && !needed(process)) processes_.forget(process);
  }
}

void ConnectionDemand::drop(uint64_t process) {
  voice_.for_each([&](ControlConnection& connection) {
    if (connection.peer == process) voice_.close_after_output(connection);
  });
  processes_.forget(process);
}

void ConnectionDemand::settle(ControlConnection& c) {
  bool need = needed(c.peer);
  if (need) c.was_needed = true;
  // One that a peer opened is its to give up: our group may not exist yet.
  if (!c.was_needed) need = c.peer_needs;
  if (need != c.needed) {
    const std::byte value{need};
    voice_.send(c, make_frame(FrameType::kNeed, ConstBytes{&value, 1}));
    c.needed = need;
  }
  if (!c.needed && !c.peer_needs && id_ < c.peer) voice_.close(c);
}

}  // namespace ringdist
