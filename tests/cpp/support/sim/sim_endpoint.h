// One Context's end of the simulated network, with the events that it has not taken yet. SimNetwork
// owns it and guards it with its mutex.
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

// An event that a transport reports to its TransportDelegate.
struct SimEvent {
  enum class Kind : uint8_t { kMessage, kSent, kLost };
  Kind kind = Kind::kMessage;
  ContextId peer = 0;
  std::vector<std::byte> header;
  std::vector<std::byte> payload;
  SendId send_id = kNoSendId;
  Error error;

  // Makes the event for a send that has ended.
  static SimEvent sent(ContextId to, SendId send_id, Error error) {
    return {Kind::kSent, to, {}, {}, send_id, std::move(error)};
  }
};

// The state of one Context on the simulated network.
struct SimEndpoint {
  enum class State : uint8_t {
    kRuns,
    kStopped,  // takes and sends nothing, as after SIGSTOP
    kEnded,    // closed, or its process was killed
  };

  ContextId id = 0;
  int core = 0;  // its number in the NetworkModel
  State state = State::kRuns;
  std::deque<SimEvent> news;     // events that it has not taken, oldest first
  std::set<ContextId> met;       // peers that it has sent to or was sent to by
  std::set<ContextId> lost;      // peers that it was notified about, or has dropped
  std::set<ContextId> losing;    // peers to notify it about once their last message has arrived
  std::map<ContextId, int> due;  // messages to it that it has not taken, by sender
  int undelivered = 0;           // messages from it that their receivers have not taken
  bool woken = false;            // is in SimNetwork's list of woken Contexts
  std::optional<EventFd> event;  // only of a Context that may sleep
};

}  // namespace ringdist
