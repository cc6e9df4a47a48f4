// Client of the dumps and snapshots of other processes in a job with a key. The Python modules
// _dump and _snapshot read those of a job without one.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/error.h"
#include "control/control_frames.h"

namespace ringdist {

// Sends a request to the Context that listens at an abstract socket, such as
// "@ringdist-71-0123456789abcdef". Returns the texts of its answer, a dump or a snapshot. Blocks.
// Any thread. Errors: those of read_tls_key(), kInvalidArgument for another name, kTimeout at the
// deadline, kPeerLost if it refuses the key or ends the connection.
Result<std::vector<std::string>> read_report(const std::string& unix_name, const TlsFiles& files,
                                             FrameType request, ConstBytes body,
                                             TimePoint deadline);

}  // namespace ringdist
