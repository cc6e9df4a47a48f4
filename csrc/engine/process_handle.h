// What a process tells of itself to whoever decides on the members of a group: an opaque text that
// is passed on by other means, and all that the others need to reach it. A value; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "rendezvous/rank_info.h"

namespace ringdist {

struct ProcessHandle {
  RankInfo entry;         // with the addresses of all transports
  uint64_t instance = 0;  // of several groups in one process: this one

  // Printable ASCII without spaces.
  std::string encode() const;
  // Errors: kInvalidArgument, it is none; kMismatch, of another wire version.
  static Result<ProcessHandle> decode(const std::string& text);
};

}  // namespace ringdist
