// How an op's error reads: which op of which rank, the cause, and what became of its tensors.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/trace_recorder.h"
#include "engine/op/op.h"
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

// That an op of that group has ended.
inline void trace_op(TraceRecorder& recorder, const std::string& group, const Op& op,
                     const Error& error) noexcept {
  try {
    recorder.add(
        {"group " + group, op.describe(), error ? error.message() : "", op.started, Clock::now()});
  } catch (...) {  // there is no memory for it
  }
}

}  // namespace ringdist
