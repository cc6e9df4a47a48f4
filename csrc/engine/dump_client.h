// Client of the reports of other processes in a job with a key. torch_ringdist/_dump.py reads those
// of a job without one.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/config.h"
#include "base/error.h"

namespace ringdist {

// Returns the report of the Context that listens at an abstract socket, such as
// "@ringdist-71-0123456789abcdef". Blocks. Any thread. Errors: those of read_tls_key(),
// kInvalidArgument for another name, kTimeout at the deadline, kPeerLost if it refuses the key or
// ends the connection.
Result<std::string> read_dump(const std::string& unix_name, const TlsFiles& files,
                              TimePoint deadline);

}  // namespace ringdist
