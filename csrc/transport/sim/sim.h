// Transport `sim`: Contexts of one process over a network that is computed
// (simulate/network_model.h), with a virtual clock, costs per kind of link, and faults. For tests
// and predictions: no user can choose it.
#pragma once

#include "transport/transport.h"

namespace ringdist {

Error sim_viable(const TransportConfig& config);
Result<std::unique_ptr<Transport>> sim_create(const TransportConfig& config,
                                              TransportDelegate& receiver);

}  // namespace ringdist
