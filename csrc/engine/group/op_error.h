// Text of an op's error, and the trace entry of an op that has ended. The error names the op, its
// rank and group, the cause, and the state of the tensors.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/trace_recorder.h"
#include "engine/op/op.h"
#include "engine/op/op_execution.h"

namespace ringdist {

// Makes the error of an op. `run` is null if the op has not started or is executed on a device. If
// there is no memory for the text, returns the cause alone.
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

// Records in the trace that an op of the group has ended. An entry is dropped if there is no memory
// for it.
inline void trace_op(TraceRecorder& recorder, const std::string& group, const Op& op,
                     const Error& error) noexcept {
  try {
    recorder.add(
        {"group " + group, op.describe(), error ? error.message() : "", op.started, Clock::now()});
  } catch (...) {  // no memory: the entry is dropped
  }
}

}  // namespace ringdist
