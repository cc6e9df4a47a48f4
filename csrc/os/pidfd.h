// Process descriptors. A pidfd becomes readable when its process ends, even if other processes hold
// copies of that process' sockets.
#pragma once

#include <sys/types.h>

#include "base/error.h"
#include "os/fd.h"

namespace ringdist {

// Opens a pidfd. Error: kSystem, if the process is not visible from here or the kernel has no
// pidfds.
Result<Fd> open_pidfd(pid_t pid);

// Returns true if the process has ended. Does not block.
bool has_exited(const Fd& pidfd);

// Returns true if the process is visible from here and is stopped, by a signal or a debugger.
bool is_stopped(pid_t pid);

}  // namespace ringdist
