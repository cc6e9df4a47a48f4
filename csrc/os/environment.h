// The environment of this process, beside threads that read it. setenv(3) moves it while they do: a
// getenv(3) of another thread, of which every allocation of a tensor has one, may crash.
#pragma once

#include <span>

namespace ringdist {

// Sets what is not set yet: "NAME=value", each of static lifetime. What was set stays as it was,
// and where others are still reading stays, too. Any thread. What a thread changes by setenv() in
// the same microsecond may be lost.
void set_defaults(std::span<const char* const> settings);

}  // namespace ringdist
