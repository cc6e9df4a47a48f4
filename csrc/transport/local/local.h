// Transport `local`: Contexts of one process, for tests. Messages of one ordered pair stay in
// order; across pairs the order is drawn from a seed, and each message is held back for a random
// time, so that every run with another seed sees another interleaving.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/transport.h"

namespace ringdist {

struct LocalOptions {
  uint64_t seed = 1;
  Duration max_delay = std::chrono::microseconds(0);
};

// What connects the Contexts; shared by all of them. Thread-safe.
std::shared_ptr<LocalNetwork> make_local_network(LocalOptions options = {});

Error local_viable(const TransportConfig& config);
Result<std::unique_ptr<Transport>> local_create(const TransportConfig& config, Receiver& receiver);

}  // namespace ringdist
