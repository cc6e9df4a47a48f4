// Which machine this is, as far as a process can tell.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/error.h"

namespace ringdist {

std::string host_name();

// Processes with equal keys claim to share a host: same boot of the kernel, same network namespace.
// Cloned machines can share it, so whoever relies on it asks for proof (Control::prove_same_host).
// Error (kSystem): there is no descriptor to read it with. Any thread.
Result<std::string> host_key();

// How much memory the machine can still give without swapping. Any thread.

// Bytes, caches that can be dropped among them; nothing where the system does not say.
std::optional<size_t> available_memory();

}  // namespace ringdist
