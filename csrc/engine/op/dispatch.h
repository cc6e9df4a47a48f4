// What whoever drives a lane does for its OpExecutions.
//
// Every call comes with the lane's driver token held.
#pragma once

#include "engine/op/op_execution.h"
#include "engine/op/progress_state.h"

namespace ringdist {

// Works on a segment of the step that has waited the longest; there is one.
inline void run_next_step(ProgressState& progress) {
  const WorkItem item = progress.work.pop();
  item.run->work(item.step);
}

// A send has ended. Its OpExecution hears of it, if that has not; then the memory goes.
inline void complete_send(ProgressState& progress, SendId send_id, const Error& error) {
  const auto home = progress.completions.complete(send_id);
  if (!home || home->what.run == nullptr) return;
  home->what.run->on_sent(home->what.step, home->what.target, home->what.segment, error);
}

}  // namespace ringdist
