// Transport `local`: Contexts of one process, for tests. Messages of one ordered pair stay in
// order; across pairs the order is drawn from a seed, and each message is held back for a random
// time, so that every run with another seed sees another interleaving. Or nothing moves by itself:
// a test lets messages through, in the order of their sends, and sees the same run every time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "transport/transport.h"

namespace ringdist {

struct LocalOptions {
  uint64_t seed = 1;
  Duration max_delay = std::chrono::microseconds(0);
  bool held = false;  // messages wait for let_through()
  // Null, or sees every message as it is sent. Called on all lanes at once.
  std::function<void(ConstBytes header, ConstBytes payload)> tap = {};
};

// What connects the Contexts; shared by all of them. Thread-safe.
std::shared_ptr<LocalNetwork> make_local_network(LocalOptions options = {});

// Of a held network: what was sent to that Context until now arrives. Returns how many messages
// that are. Any thread.
size_t let_through(LocalNetwork& network, ContextId to);

Error local_viable(const TransportConfig& config);
Result<std::unique_ptr<Transport>> local_create(const TransportConfig& config,
                                                TransportDelegate& receiver);

}  // namespace ringdist
