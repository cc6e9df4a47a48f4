// How far the steps of one op have come on this rank, and which segments may go on.
#pragma once

#include <cstdint>
#include <map>
#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include "base/scratch_pool.h"
#include "engine/op/flow_control.h"
#include "engine/op/recv_edge.h"
#include "engine/op/send_edge.h"
#include "plan/compiled_schedule.h"

namespace ringdist {

class StepProgress {
 public:
  struct StepState {
    int64_t written = 0;  // segments received, reduced or copied
    std::span<RecvEdge> in;
    std::span<SendEdge> out;
    // What was encoded, here or by the rank that we relay for, until all targets were sent it.
    std::map<int64_t, PooledBuffer> held;
    bool queued = false;
    bool done = false;
  };

  // `memory` outlives it.
  StepProgress(const CompiledSchedule& schedule, GrantBudget& budget,
               std::pmr::memory_resource& memory);

  int count() const { return static_cast<int>(steps_.size()); }
  bool all_done() const { return unfinished_ == 0; }
  StepState& operator[](int step) { return steps_[static_cast<size_t>(step)]; }
  const StepState& operator[](int step) const { return steps_[static_cast<size_t>(step)]; }
  const CompiledStep& compiled(int step) const {
    return schedule_.steps[static_cast<size_t>(step)];
  }
  bool writes(int step) const { return compiled(step).step.kind != StepKind::kSend; }

  // All that the segment depends on is there.
  bool ready(int step, int64_t segment) const;
  // What the step sends as that segment is there.
  bool is_there(int step, int64_t segment) const {
    return writes(step) ? segment < (*this)[step].written : ready(step, segment);
  }
  // Whether the step is done, which it was not before.
  bool mark_done(int step);
  // Something from the peer has not come; something for it has not been sent.
  bool waits_for(int peer) const;
  bool has_unsent_to(int peer) const;
  // A line for each end of an edge of those that are not done.
  std::string dump() const;
  // Nothing more is received, and nothing that was encoded is sent.
  void stop();

 private:
  int64_t progress_of(int step, bool finished) const;
  bool complete(int step) const;

  const CompiledSchedule& schedule_;
  std::pmr::vector<RecvEdge> inflows_;  // of all steps, in their order
  std::pmr::vector<SendEdge> outflows_;
  std::pmr::vector<StepState> steps_;
  int unfinished_;
};

}  // namespace ringdist
