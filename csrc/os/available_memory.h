// How much memory the machine can still give without swapping. Any thread.
#pragma once

#include <cstddef>
#include <optional>

namespace ringdist {

// Bytes, caches that can be dropped among them; nothing where the system does not say.
std::optional<size_t> available_memory();

}  // namespace ringdist
