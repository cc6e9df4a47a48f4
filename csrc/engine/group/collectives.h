// A group's collectives in flight, by number, here or on a device; barriers, which begin when all
// before them has ended and is where the caller wants it; and what has come for collectives that
// are not called here yet.
//
// Every call comes with the lane's driver token held.
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

class Collectives {
 public:
  using Runs = std::pmr::map<uint64_t, OpExecutionPtr>;
  using OnDevice = std::map<uint64_t, std::shared_ptr<Op>>;

  Collectives(ExecutionDelegate& delegate, RetireExecution retire)
      : delegate_(delegate),
        retire_(std::move(retire)),
        runs_(&delegate.progress.memory),
        unexpected_(delegate.progress.scratch) {}

  void called(const Op& op);
  // True for a barrier that has to wait: it is kept until take_barrier(). One on a device waits
  // there, for what that has before it.
  bool keep(const std::shared_ptr<Op>& op);
  // True for an op without steps, as those of a group of one: it has ended.
  bool ends_at_once(const Op& op);
  // Runs it; what has come for it is the caller's to deliver, as long as find() knows it.
  std::vector<UnexpectedMessage> start(std::shared_ptr<Op> op);
  // A device runs it, until ended_on_device(). What has come for it is of ranks that call something
  // else.
  std::vector<UnexpectedMessage> start_on_device(std::shared_ptr<Op> op);
  void ended_on_device(uint64_t number) { on_device_.erase(number); }
  // The next barrier, if it may begin now.
  std::shared_ptr<Op> take_barrier();
  // Of an op that has ended: its caller has the results.
  void output_delivered(uint64_t number) { undelivered_outputs_.erase(number); }
  void finished(const OpExecution& run);

  // True if it is of an op that has not begun: it is kept.
  bool store_unexpected(const MessageHeader& header, const Payload& payload);

  // Tells each op, none of which may run on; what throws half-way leaves the rest for another call.
  void stop(const OpVisitor& tell);

  // Those that run here, not on a device. Null if it does not.
  OpExecution* find(uint64_t number) const;
  OpExecution* oldest() const { return runs_.empty() ? nullptr : runs_.begin()->second.get(); }
  // The call of an op that runs, here or on a device.
  std::optional<Fingerprint> call(uint64_t number) const;
  // The number of the last one that was called; of the last before which all have ended.
  uint64_t last_called() const { return last_called_; }
  uint64_t last_ended() const { return first_unfinished().value_or(last_called_ + 1) - 1; }
  // The first that is not finished, or the next to begin.
  uint64_t first_open() const { return first_unfinished().value_or(last_started_ + 1); }
  // The newest that runs; 0: none does.
  uint64_t last_running() const;
  // The oldest that runs, and since when nothing of it has moved.
  std::optional<FailureState::Oldest> first_running() const;
  bool idle() const { return runs_.empty() && barriers_.empty() && on_device_.empty(); }

  const Runs& runs() const { return runs_; }
  const OnDevice& on_device() const { return on_device_; }
  const std::deque<std::shared_ptr<Op>>& barriers() const { return barriers_; }  // that wait
  std::string dump() const;
  std::string dump_unexpected() const;

 private:
  bool held_up(uint64_t barrier) const;
  // Of those that were called.
  std::optional<uint64_t> first_unfinished() const;

  ExecutionDelegate& delegate_;
  const RetireExecution retire_;
  Runs runs_;  // the first is the oldest
  OnDevice on_device_;
  std::deque<std::shared_ptr<Op>> barriers_;
  std::set<uint64_t> undelivered_outputs_;  // ops of which output_delivered() has not told yet
  UnexpectedQueue<uint64_t> unexpected_;
  uint64_t last_called_ = 0;
  uint64_t last_started_ = 0;
};

}  // namespace ringdist
