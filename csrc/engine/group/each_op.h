// How those who keep a group's ops show them and let them go.
#pragma once

#include <functional>
#include <memory>

#include "engine/op/run.h"

namespace ringdist {

// An op, and its Run if it has begun.
using EachOp = std::function<void(const std::shared_ptr<Op>& op, Run* run)>;

// Takes a Run that has ended and may be on the stack still. What throws has taken nothing.
using RetireRun = std::function<void(std::unique_ptr<Run>&& run)>;

}  // namespace ringdist
