#pragma once

#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/trace_recorder.h"
#include "engine/op/op.h"

namespace ringdist {

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
