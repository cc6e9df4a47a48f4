// State of one op that is being executed: the op, the progress of its steps and the group to report
// to. Both halves of an OpExecution share it; OpExecution itself receives, and SegmentSender sends.
//
// Threads: the caller holds the lane's progress lock.
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

// Determines how many segments an edge of one op may have in flight. The number is kMost, unless
// several ranks of other hosts send compressed data to this rank. These share a slow link, and
// InboundWindow (flow_control.h) determines their shares.
class EdgeWindow {
 public:
  static constexpr int64_t kMost = 8;  // enough for loopback and for 10 Gb/s at 1 ms

  // Counts the senders on other hosts of a compressed op. `arithmetic` and `flow` must outlive this
  // object.
  EdgeWindow(const Op& op, Arithmetic& arithmetic, GroupFlowState& flow)
      : arithmetic_(arithmetic), flow_(flow) {
    if (!op.request.codec_map) return;
    int last = -1;  // the map is sorted by sender
    for (const auto& [edge, end] : op.schedule->inbound)
      if (std::exchange(last, edge.first) != edge.first && !flow.is_near(edge.first)) ++senders_;
  }

  // Start and end the measurement of the inbound rate for this op. end() is called exactly once
  // after begin().
  void begin() {
    if (measures()) flow_.inbound.begin();
  }
  void end(TimePoint now) {
    if (measures()) flow_.inbound.end(now);
  }
  // Records the arrival of a message from `peer`. If it is the first that a grant permitted,
  // `granted` is the time of that grant.
  void arrived(int peer, size_t bytes, std::optional<TimePoint> granted, TimePoint now) {
    if (!measures() || flow_.is_near(peer)) return;
    flow_.inbound.arrived(bytes, now);
    if (granted) flow_.inbound.answered(now - *granted);
  }

  // Returns the number of segments that an incoming edge from `peer` may have in flight: kMost, or
  // at least 2.
  int64_t segments(int step, int peer) const {
    if (!measures() || flow_.is_near(peer)) return kMost;
    const int64_t share = flow_.inbound.share(senders_);
    if (share == InboundWindow::kUnlimited) return kMost;
    const auto segment = static_cast<int64_t>(arithmetic_.mean_bytes(step));
    return std::clamp<int64_t>(share / std::max<int64_t>(1, segment), 2, kMost);
  }
  // Returns the number of segments that may be sent to `peer` before any grant, if eager credit
  // permits. The link into a receiver is assumed to be as fast as the link into this rank.
  int64_t unsolicited(int step, int peer) const {
    const int64_t most = segments(step, peer);
    return most == kMost ? InboundWindow::kUnlimited : most;
  }

 private:
  bool measures() const { return senders_ > 1; }

  Arithmetic& arithmetic_;
  GroupFlowState& flow_;
  int senders_ = 0;  // for a compressed op: ranks of other hosts that send to this one
};

// Progress of all steps of one op on this rank. Determines which segments are ready, given the
// dependencies of the compiled schedule.
class StepProgress {
 public:
  // Progress of one step, with both kinds of edges that end here.
  struct StepState {
    int64_t written = 0;      // segments received, reduced or copied
    std::span<RecvEdge> in;   // by slot, as CompiledStep::in
    std::span<SendEdge> out;  // by target, as CompiledStep::out
    // Encoded bytes by segment, until they have been sent to all targets. They were encoded here,
    // or by the rank that a relay step received them from.
    std::map<int64_t, PooledBuffer> held;
    bool queued = false;  // is in the lane's WorkQueue
    bool done = false;    // all segments are written and all sends have completed
  };

  // `schedule`, `budget` and `memory` must outlive this object.
  StepProgress(const CompiledSchedule& schedule, GrantBudget& budget,
               std::pmr::memory_resource& memory);

  int count() const { return static_cast<int>(steps_.size()); }
  // Returns true once mark_done() has returned true for every step.
  bool all_done() const { return unfinished_ == 0; }
  StepState& operator[](int step) { return steps_[static_cast<size_t>(step)]; }
  const StepState& operator[](int step) const { return steps_[static_cast<size_t>(step)]; }
  const CompiledStep& compiled(int step) const {
    return schedule_.steps[static_cast<size_t>(step)];
  }
  // Returns true if the step writes memory of this rank, which is every kind but a send.
  bool writes(int step) const { return compiled(step).step.kind != StepKind::kSend; }

  // Returns true if everything that the segment depends on has been completed.
  bool ready(int step, int64_t segment) const;
  // Returns true if the data that the step sends for this segment is available.
  bool is_there(int step, int64_t segment) const {
    return writes(step) ? segment < (*this)[step].written : ready(step, segment);
  }
  // Marks the step as done if it is complete. Returns true if this call changed it.
  bool mark_done(int step);
  // waits_for() returns true if a segment from the peer has not arrived. has_unsent_to() returns
  // true if a segment for the peer has not been given to the transport.
  bool waits_for(int peer) const;
  bool has_unsent_to(int peer) const;
  // Returns one line for each edge of each unfinished step, for diagnostics.
  std::string dump() const;
  // Drops encoded and kept segments and returns granted memory to the budget.
  void stop();

 private:
  // Returns how many elements of the step's range, from its start, a dependent step may rely on.
  // With `finished`, it counts only elements that no pending send reads any more.
  int64_t progress_of(int step, bool finished) const;
  // Returns true if all segments of the step are written and all its sends have completed.
  bool complete(int step) const;

  const CompiledSchedule& schedule_;
  std::pmr::vector<RecvEdge> inflows_;   // receiving ends of all steps, in step order
  std::pmr::vector<SendEdge> outflows_;  // sending ends of all steps, in step order
  std::pmr::vector<StepState> steps_;
  int unfinished_;
};

// Everything that OpExecution and SegmentSender share about one op. The group owns it through the
// OpExecution.
class ExecutionState {
 public:
  // `number` identifies the op in message headers: the op number of a collective, or a
  // PointToPointId.
  ExecutionState(OpExecution& run, ExecutionDelegate& delegate, std::shared_ptr<Op> op,
                 uint64_t number);
  ExecutionState(const ExecutionState&) = delete;
  ExecutionState& operator=(const ExecutionState&) = delete;

  const CompiledStep& compiled(int step) const { return steps.compiled(step); }
  bool ended() const { return ended_; }
  // Ends the execution. Queued steps are dropped, and sends in flight are detached: their payloads
  // are revoked, and the completion table keeps the memory until they complete. Call once.
  void end();

  // Queues the step in the lane's WorkQueue, unless it is queued or the execution has ended.
  void queue(int step);
  // Records that the step has been taken from the WorkQueue.
  void taken(int step);
  // Call after a segment of the step was written or a send of it completed. Queues the steps that
  // depend on it, and reports the op as finished once all steps are done.
  void after_progress(int step);
  // Returns the id for a send that is about to start; the completion table keeps `memory` until it
  // completes. If the send then fails to start, the count of sends is too high, which does no harm
  // because the op ends.
  SendId issue(int step, int target, int64_t segment, std::shared_ptr<const void> memory);
  // Records that a send of this execution has completed.
  void send_completed() { --open_sends_; }
  // Fails the group with the error, prefixed by the description of the op.
  void fail(const Error& error) { delegate.fail(error.prefixed(op->describe() + ": ")); }

  OpExecution& run;
  ExecutionDelegate& delegate;
  const std::shared_ptr<Op> op;
  const uint64_t number;              // identifies the op in message headers
  const StoreModeTuner::Trial trial;  // how to store large outputs, and the measurement of it
  const Pooled<Arithmetic> arithmetic;
  StepProgress steps;
  EdgeWindow window;
  TimePoint last_progress;  // when a segment was last written or sent

 private:
  bool ended_ = false;
  int queued_ = 0;      // number of steps in the lane's queue
  int open_sends_ = 0;  // sends that have not completed
};

}  // namespace ringdist
