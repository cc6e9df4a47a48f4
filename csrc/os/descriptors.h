// How many file descriptors a process has left. Any thread.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/error.h"

namespace ringdist {

// kSystem, with what to do about it, unless `count` can be open at once for the use that `what`
// names, of which `had` are open already.
Error require_descriptors(size_t count, std::string_view what, size_t had = 0);

}  // namespace ringdist
