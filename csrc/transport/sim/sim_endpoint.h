// One Context's end of the simulated network: what is there for it and has not been taken. Belongs
// to SimNetwork, which guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "os/epoll.h"
#include "transport/transport.h"

namespace ringdist {

// What a transport tells its TransportDelegate of.
struct SimEvent {
  enum class Kind : uint8_t { kMessage, kSent, kLost };
  Kind kind = Kind::kMessage;
  ContextId peer = 0;
  std::vector<std::byte> header;
  std::vector<std::byte> payload;
  SendId send_id = kNoSendId;
  Error error;

  static SimEvent sent(ContextId to, SendId send_id, Error error) {
    return {Kind::kSent, to, {}, {}, send_id, std::move(error)};
  }
};

struct SimEndpoint {
  enum class State : uint8_t {
    kRuns,
    kStopped,  // its process takes nothing and sends nothing, as after SIGSTOP
    kEnded,    // closed, or its process was killed
  };

  ContextId id = 0;
  int core = 0;  // of the Wire
  State state = State::kRuns;
  std::deque<SimEvent> news;
  std::set<ContextId> met;       // has sent to or been sent to by
  std::set<ContextId> lost;      // has been told so, or has dropped it
  std::set<ContextId> losing;    // is to be told, when the last of theirs is here
  std::map<ContextId, int> due;  // messages on their way here, or not taken yet, by sender
  int undelivered = 0;           // own messages of which the same holds
  bool woken = false;            // is in the network's list
  std::optional<EventFd> event;  // of one that may sleep
};

}  // namespace ringdist
