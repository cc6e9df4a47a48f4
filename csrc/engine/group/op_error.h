// How an op's error reads: which op of which rank, the cause, and what became of its tensors.
#pragma once

#include <string>

#include "engine/op/op_execution.h"

namespace ringdist {

// `run`: null if it has not begun, and of an op on a device. Without memory for the words it is the
// cause alone.
inline Error op_error(const Op& op, const OpExecution* run, int rank, const std::string& group,
                      const Error& cause) noexcept {
  const bool wrote = run != nullptr ? run->wrote() : op.request.device_stream.has_value();
  try {
    return cause
        .prefixed("ringdist: " + op.describe() + " on rank " + std::to_string(rank) +
                  " of group '" + group + "' failed: ")
        .suffixed(wrote ? "; its output may be partly overwritten" : "; its tensors are unchanged");
  } catch (...) {
    return cause;
  }
}

}  // namespace ringdist
