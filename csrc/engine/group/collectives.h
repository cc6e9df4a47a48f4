// The collectives of a group that are in flight, by op number. They are executed here (OpExecution)
// or on a device. A barrier is kept until all earlier ops have ended and their results are where
// the caller wants them. Messages for collectives that this rank has not called are kept in an
// unexpected-message queue.
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/group/failure_state.h"
#include "engine/group/op_visitor.h"
#include "engine/group/unexpected_queue.h"
#include "engine/op/execution_delegate.h"

namespace ringdist {

// Owns the OpExecutions of a group's collectives. Group decides when an op starts and what happens
// when it ends.
class Collectives {
 public:
  using Runs = std::pmr::map<uint64_t, OpExecutionPtr>;
  using OnDevice = std::map<uint64_t, std::shared_ptr<Op>>;

  // `delegate` must outlive this object. `retire` takes over executions that have ended.
  Collectives(ExecutionDelegate& delegate, RetireExecution retire)
      : delegate_(delegate),
        retire_(std::move(retire)),
        runs_(&delegate.progress.memory),
        unexpected_(delegate.progress.scratch) {}

  // Records the call of an op. Numbers must be consecutive, from 1.
  void called(const Op& op);
  // If the op is a barrier that must wait, keeps it until take_barrier() and returns true. A
  // barrier on a device is not kept, because it waits there for the work before it.
  bool keep(const std::shared_ptr<Op>& op);
  // Returns true for an op without steps, such as one in a group of one rank. It is recorded as
  // started and has nothing left to do.
  bool ends_at_once(const Op& op);
  // Starts the execution of the op. Returns the messages that arrived before. The caller delivers
  // them, as long as find() still returns the execution.
  std::vector<UnexpectedMessage> start(std::shared_ptr<Op> op);
  // Records that a device executes the op, until ended_on_device(). Returns the messages that
  // arrived before: they come from ranks that have called a different op.
  std::vector<UnexpectedMessage> start_on_device(std::shared_ptr<Op> op);
  void ended_on_device(uint64_t number) { on_device_.erase(number); }
  // Removes and returns the oldest kept barrier if it may start; else null.
  std::shared_ptr<Op> take_barrier();
  // Records that the caller has the results of an op with staged output.
  void output_delivered(uint64_t number) { undelivered_outputs_.erase(number); }
  // Retires an execution that has finished.
  void finished(const OpExecution& run);

  // If the message belongs to an op that has not started, keeps it and returns true. That is an op
  // which this rank has not called, or a kept barrier.
  bool store_unexpected(const MessageHeader& header, const Payload& payload);
  size_t unexpected_count() const { return unexpected_.count(); }  // number of kept messages

  // Stops every op and calls `tell` for each. If that throws, the remaining ops are left for
  // another call.
  void stop(const OpVisitor& tell);

  // Returns the execution of the op, or null if it is not executed here.
  OpExecution* find(uint64_t number) const;
  // Returns the execution with the lowest number, or null.
  OpExecution* oldest() const { return runs_.empty() ? nullptr : runs_.begin()->second.get(); }
  // Returns the fingerprint of an op in flight, here or on a device.
  std::optional<Fingerprint> call(uint64_t number) const;
  // last_called() returns the number of the last call. last_ended() returns the last number for
  // which this op and all before it have ended.
  uint64_t last_called() const { return last_called_; }
  uint64_t last_ended() const { return first_unfinished().value_or(last_called_ + 1) - 1; }
  // Returns the first number that is not finished, or the next to start. In contrast to
  // last_ended(), an op that was called but is in no list yet counts as unfinished.
  uint64_t first_open() const { return first_unfinished().value_or(last_started_ + 1); }
  // Returns the highest number in flight, not counting kept barriers; 0 if there is none.
  uint64_t last_running() const;
  // Returns the oldest op in flight, not counting kept barriers, and the time of its last progress.
  std::optional<FailureState::Oldest> first_running() const;
  // Returns true if no op is in flight or kept.
  bool idle() const { return runs_.empty() && barriers_.empty() && on_device_.empty(); }

  const Runs& runs() const { return runs_; }
  const OnDevice& on_device() const { return on_device_; }  // ops on devices
  // Kept barriers, oldest first.
  const std::deque<std::shared_ptr<Op>>& barriers() const { return barriers_; }
  // Return a line for each op in flight, and for each op that messages are kept for.
  std::string dump() const;
  std::string dump_unexpected() const;

 private:
  // Returns true if an op before number `barrier` is unfinished or its output has not been
  // delivered.
  bool held_up(uint64_t barrier) const;
  // Returns the lowest number of the called ops that are unfinished, or nothing.
  std::optional<uint64_t> first_unfinished() const;

  ExecutionDelegate& delegate_;
  const RetireExecution retire_;
  Runs runs_;  // by op number
  OnDevice on_device_;
  std::deque<std::shared_ptr<Op>> barriers_;
  std::set<uint64_t> undelivered_outputs_;  // ops with staged output, until output_delivered()
  UnexpectedQueue<uint64_t> unexpected_;
  uint64_t last_called_ = 0;
  uint64_t last_started_ = 0;
};

}  // namespace ringdist
