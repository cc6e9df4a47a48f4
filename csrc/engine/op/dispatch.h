// What whoever drives a lane does for its OpExecutions.
//
// Every call comes with the lane's driver token held.
#pragma once

#include "engine/op/lane_state.h"
#include "engine/op/run.h"

namespace ringdist {

// Works on a segment of the step that has waited the longest; there is one.
inline void work_next(ProgressState& lane) {
  const WorkItem item = lane.work.pop();
  item.run->work(item.step);
}

// A send has ended. Its OpExecution hears of it, if that has not; then the memory goes.
inline void bring_home(ProgressState& lane, SendId ticket, const Error& error) {
  const auto home = lane.tickets.redeem(ticket);
  if (!home || home->what.run == nullptr) return;
  home->what.run->on_sent(home->what.step, home->what.target, home->what.segment, error);
}

}  // namespace ringdist
