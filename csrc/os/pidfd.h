// A descriptor that becomes readable when a process ends, whoever else holds copies of its sockets.
#pragma once

#include <sys/types.h>

#include "base/error.h"
#include "os/fd.h"

namespace ringdist {

// Fails where the process is not visible from here or the kernel has no pidfds.
Result<Fd> open_pidfd(pid_t pid);

bool has_exited(const Fd& pidfd);

}  // namespace ringdist
