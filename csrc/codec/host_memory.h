#pragma once

#include "codec/gradient_memory.h"

namespace ringdist {

// The host's. Any thread.
GradientMemory& host_memory();

}  // namespace ringdist
