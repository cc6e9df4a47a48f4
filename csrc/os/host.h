// Identity and free memory of this machine. Any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/error.h"

namespace ringdist {

// Returns the machine's name as gethostname(2) reports it, or "unknown".
std::string host_name();

// Returns an identifier of this host, for comparison: the kernel's boot id and the network
// namespace. A part that the system does not report is the same in all processes. Processes with
// equal keys claim to share a host. Cloned machines can have the same key, so code that relies on
// it requests a proof (Context::prove_same_host()). Error: kSystem, if no descriptor is left to
// read it with.
Result<std::string> host_key();

// Returns the bytes of memory that the machine can still provide without swapping, including caches
// that can be dropped. Returns nothing if the system does not report it.
std::optional<size_t> available_memory();

}  // namespace ringdist
