// What both halves of a OpExecution work on: the op, how far its steps have come, and the way out.
//
// Every call comes with the lane's driver token held.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/scratch_pool.h"
#include "engine/op/arithmetic.h"
#include "engine/op/edges.h"
#include "engine/op/execution_delegate.h"
#include "engine/op/flow_control.h"
#include "engine/op/op.h"
#include "plan/compiled_schedule.h"

namespace ringdist {

// How many segments an edge of one op may have on their way: a fixed number, fewer of a compressed
// op whose senders on other hosts share a slow link into this rank (inbound_window.h).
class EdgeWindow {
 public:
  static constexpr int64_t kMost = 8;  // enough for loopback and for 10 Gb/s at 1 ms

  EdgeWindow(const Op& op, Arithmetic& arithmetic, GroupFlowState& flow)
      : arithmetic_(arithmetic), flow_(flow) {
    if (!op.request.codec_map) return;
    int last = -1;  // they are in order of the sender
    for (const auto& [edge, end] : op.schedule->inbound)
      if (std::exchange(last, edge.first) != edge.first && !flow.is_near(edge.first)) ++senders_;
  }

  void begin() {
    if (measures()) flow_.inbound.begin();
  }
  void end(TimePoint now) {
    if (measures()) flow_.inbound.end(now);
  }
  // Of a message that is the first that a grant allowed, when that was.
  void arrived(int peer, size_t bytes, std::optional<TimePoint> granted, TimePoint now) {
    if (!measures() || flow_.is_near(peer)) return;
    flow_.inbound.arrived(bytes, now);
    if (granted) flow_.inbound.answered(now - *granted);
  }

  int64_t segments(int step, int peer) const {
    if (!measures() || flow_.is_near(peer)) return kMost;
    const int64_t share = flow_.inbound.share(senders_);
    if (share == InboundWindow::kUnlimited) return kMost;
    const auto segment = static_cast<int64_t>(arithmetic_.mean_bytes(step));
    return std::clamp<int64_t>(share / std::max<int64_t>(1, segment), 2, kMost);
  }
  // That may be sent before any grant, credit allowing. The link into a receiver is taken to be as
  // fast as that to us.
  int64_t unsolicited(int step, int peer) const {
    const int64_t most = segments(step, peer);
    return most == kMost ? InboundWindow::kUnlimited : most;
  }

 private:
  bool measures() const { return senders_ > 1; }

  Arithmetic& arithmetic_;
  GroupFlowState& flow_;
  int senders_ = 0;  // of a compressed op: ranks of other hosts that send to us
};

// How far the steps of one op have come on this rank, and which segments may go on.
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
