// How those who keep a group's ops show them and let them go.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "engine/op/run.h"

namespace ringdist {

// An op, and its Run if it has begun.
using EachOp = std::function<void(const std::shared_ptr<Op>& op, Run* run)>;

// Takes a Run that has ended and may be on the stack still. What throws has taken nothing.
using RetireRun = std::function<void(RunPtr&& run)>;

// Ends all of a map of Runs: each is stopped before its op is told, as the op's owner may use the
// tensors once told. What throws half-way leaves the rest for another call.
template <typename Runs>
void end_runs(Runs& runs, const EachOp& tell, const RetireRun& retire) {
  for (; !runs.empty(); runs.erase(runs.begin())) {
    auto& run = runs.begin()->second;
    run->stop();
    tell(run->op(), run.get());
    retire(std::move(run));
  }
}

}  // namespace ringdist
