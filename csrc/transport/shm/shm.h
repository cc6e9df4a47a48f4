// What the registry needs of transport `shm`.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace ringdist {

Error shm_viable(const TransportConfig& config);
Result<std::unique_ptr<Transport>> shm_create(const TransportConfig& config,
                                              TransportDelegate& receiver);

}  // namespace ringdist
