// What both halves of a OpExecution work on: the op, how far its steps have come, and the way out.
//
// Every call comes with the lane's driver token held.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "engine/op/arithmetic.h"
#include "engine/op/edge_window.h"
#include "engine/op/execution_delegate.h"
#include "engine/op/op.h"
#include "engine/op/step_progress.h"

namespace ringdist {

class ExecutionState {
 public:
  ExecutionState(OpExecution& run, ExecutionDelegate& delegate, std::shared_ptr<Op> op,
                 uint64_t number);
  ExecutionState(const ExecutionState&) = delete;
  ExecutionState& operator=(const ExecutionState&) = delete;

  const CompiledStep& compiled(int step) const { return steps.compiled(step); }
  bool ended() const { return ended_; }
  // Nothing more is queued or sent, and sends on their way are no longer ours.
  void end();

  // The step may have something to do.
  void queue(int step);
  // It has been taken from the lane's queue.
  void taken(int step);
  // A segment of the step was written, or its send has ended.
  void after_progress(int step);
  // A send is about to leave. It counts also if it is not issued: the op ends then.
  SendId issue(int step, int target, int64_t segment, std::shared_ptr<const void> memory);
  void send_completed() { --tickets_; }
  void fail(const Error& error) { delegate.fail(error.prefixed(op->describe() + ": ")); }

  OpExecution& run;
  ExecutionDelegate& delegate;
  const std::shared_ptr<Op> op;
  const uint64_t number;  // the op's on the wire
  const StoreModeTuner::Trial trial;
  const Pooled<Arithmetic> arithmetic;
  StepProgress steps;
  EdgeWindow window;
  TimePoint last_progress;

 private:
  bool ended_ = false;
  int queued_ = 0;   // steps in the lane's queue
  int tickets_ = 0;  // sends on their way
};

}  // namespace ringdist
