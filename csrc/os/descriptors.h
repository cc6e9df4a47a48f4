// How many file descriptors a process has left. Any thread.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/error.h"

namespace ringdist {

// kSystem, with what to do about it, if fewer than `count` can be opened now; for libraries that do
// not survive their lack. `what` needs them.
Error require_descriptors(size_t count, std::string_view what);

}  // namespace ringdist
