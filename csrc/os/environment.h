// Changes of this process' environment that are safe while other threads read it. setenv(3) is not:
// it moves the environment, and a getenv(3) of another thread may crash then. Each allocation of a
// tensor calls getenv().
#pragma once

#include <span>

namespace ringdist {

// Sets the variables that are not set yet. Each setting is "NAME=value" with static lifetime.
// Variables that are set keep their values. The old array is never freed, because other threads may
// still read it. Any thread. A change that another thread makes by setenv() in the same microsecond
// may be lost.
void set_defaults(std::span<const char* const> settings);

}  // namespace ringdist
