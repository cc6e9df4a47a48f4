// Transport `sim` connects Contexts of one process over a computed network
// (simulate/network_model.h). The network has a virtual clock, costs per kind of link, and faults.
// It serves tests and predictions; users cannot choose it.
#pragma once

#include "transport/transport.h"

namespace ringdist {

// Returns success if the config has a simulated network.
Error sim_viable(const TransportConfig& config);
// Opens the transport of one Context with a descriptor to sleep on. See SimTransport::create().
Result<std::unique_ptr<Transport>> sim_create(const TransportConfig& config,
                                              TransportDelegate& receiver);

}  // namespace ringdist
