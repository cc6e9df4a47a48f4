// Transport `local` connects Contexts of one process, for tests. Messages of one ordered pair stay
// in order. Across pairs the order is drawn from a seed, and each message is delayed by a random
// time. Each seed thus gives another interleaving.
//
// In a held network nothing moves by itself: a test lets messages through, in the order of their
// sends, and gets the same run every time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "transport/transport.h"

namespace ringdist {

// Options of a local network.
struct LocalOptions {
  uint64_t seed = 1;
  Duration max_delay = std::chrono::microseconds(0);  // longest random delay of a message
  bool held = false;                                  // messages wait for let_through()
  // If set, is called with every message as it is sent. It may be called on all lanes at once.
  std::function<void(ConstBytes header, ConstBytes payload)> tap = {};
};

// Creates the object that connects Contexts; all of them share it. Thread-safe.
std::shared_ptr<LocalNetwork> make_local_network(const LocalOptions& options = {});

// Lets everything arrive that was sent to that Context of a held network until this call. Returns
// the number of these messages. Any thread.
size_t let_through(LocalNetwork& network, ContextId to);

// Returns success if the config has a local network.
Error local_viable(const TransportConfig& config);
// Opens the transport of one Context. The result has the contract of Transport.
Result<std::unique_ptr<Transport>> local_create(const TransportConfig& config,
                                                TransportDelegate& receiver);

}  // namespace ringdist
