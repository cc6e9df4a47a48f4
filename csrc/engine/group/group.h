// One rank's state in a group on a lane. Group routes events (ops, messages, notices, lost
// processes, time) to the parts that handle them, and fails the group if it cannot go on. Callers
// see a group as a Communicator.
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/group/collectives.h"
#include "engine/group/desync_detector.h"
#include "engine/group/failure_state.h"
#include "engine/group/group_report.h"
#include "engine/group/group_service.h"
#include "engine/group/lost_peer_check.h"
#include "engine/group/message_sender.h"
#include "engine/group/notice.h"
#include "engine/group/op_error.h"
#include "engine/group/peer_table.h"
#include "engine/group/point_to_point.h"
#include "engine/group/service_channel.h"
#include "engine/op/execution_delegate.h"
#include "engine/op/op_execution.h"

namespace ringdist {

// Interface that a Group uses to reach its lane; Dispatcher implements it.
class GroupDelegate {
 public:
  virtual ~GroupDelegate() = default;
  // Returns the shared state of the lane, which outlives the group.
  virtual ProgressState& progress_state() = 0;
  // Sends the notice to all processes of the job.
  virtual void flood(const Notice& notice) = 0;
  // Ends the op with the error or success. Wakes its waiters and runs its callbacks on another
  // thread.
  virtual void finish_op(const std::shared_ptr<Op>& op, Error error) noexcept = 0;
  // Reports that an idle group has become busy by itself, so that it gets ticks again.
  virtual void on_busy() noexcept {}
};

// Settings of a group.
struct GroupConfig {
  std::string name;
  int64_t eager_window = 0;               // eager credit per peer in bytes
  Duration warn_after{0};                 // an op that waits longer is logged; 0 disables this
  FailureNotifier::OnFailed on_failed;    // called with the first cause, once; again if it throws
  std::shared_ptr<GroupService> service;  // null: the group has no service
};

// See the head of this file. Errors fail the group on all ranks; the first cause is reported by
// every op that has not ended.
class Group final : public ExecutionDelegate, private GroupServiceDelegate {
 public:
  // Value of `number` in fail() for a failure that is not about a certain op.
  static constexpr uint64_t kNoOp = std::numeric_limits<uint64_t>::max();

  // `delegate` must outlive the group. Broken connections of earlier groups are renewed.
  Group(GroupDelegate& delegate, const GroupDescriptor& of, GroupConfig config);

  // Starts the group's service. Call once, before any other function.
  void begin() { service_channel_.begin(*this); }
  // Accepts an op. If something throws, the group and the op fail with that error.
  void enqueue(const std::shared_ptr<Op>& op);
  // Records that the caller has the results of an op with staged output. Barriers that wait for it
  // may start.
  void output_delivered(uint64_t number);
  // Ends an op that a device has executed. An error fails the group. Has no effect if the op has
  // already ended.
  void ended_on_device(const std::shared_ptr<Op>& op, const Error& error);
  // Processes a message to this rank, which Context `from` has sent; 0 if that is unknown.
  // Messages of other generations are dropped, and those in the name of a rank of another Context.
  void on_message(ContextId from, const MessageHeader& header, const Payload& payload);
  // Processes a notice about this group from another rank.
  void on_notice(const Notice& notice);
  // Fails the group: every op ends with the error, and later ones fail at once. Only the first
  // cause counts. `number` is the op that the failure is about, if the other ranks must not finish
  // it either although this rank has. Work that fails for lack of memory is done by a later tick().
  void fail(const Error& cause, bool tell_others, uint64_t number = kNoOp) noexcept;
  // Fails the ops from `number` on, and then the group. Older ops have all they need, though it may
  // still be in flight. They finish first, unless they make no progress for half a second
  // (LostPeerCheck::kGrace).
  void fail_from(uint64_t number, const Error& cause, bool tell_others);
  // Returns the first collective that has not succeeded here. For a failed group the result is
  // final.
  uint64_t first_unfinished() const {
    return first_failed_ ? *first_failed_ : collectives_.last_ended() + 1;
  }
  // Aborts receives that no message has arrived for, and sends to this rank itself without a
  // receive, because the group is destroyed. Other ops go on. Notifies the other ranks. Returns
  // descriptions of the aborted ops.
  std::vector<std::string> abort_receives(const Error& cause);
  // Checks deadlines, stalls and broken connections. Called every few tens of milliseconds.
  void tick();
  // Records a broken connection to a member. It is no failure yet: the member may have left in good
  // order, or the control plane may report more in a moment.
  void connection_lost(std::string_view transport, ContextId context, const Error& cause);
  // Processes the loss of a process, after everything that it sent has been delivered. Fails the
  // group if an op needs something from it that will not arrive, immediately or later. Other ops
  // can still succeed, as they may have on the lost process.
  void process_lost(ContextId context, const Error& cause);
  // Processes the end of a process in good order, or of ringdist in it. Its groups have announced
  // their last op, if they had one.
  void process_left(ContextId context);
  // Announces the last op of this rank, so that the other ranks do not take its end for a loss.
  // `how` is kLeave or kExit.
  void announce_leave(NoticeKind how);

  int rank() const { return flow.rank; }
  int size() const { return flow.size; }
  // Returns true if nothing is in flight and no tick is needed.
  bool idle() const;
  // Returns the cause of the failure, or success.
  const Error& failure() const { return failure_state_.cause(); }
  GroupStatus status() const { return report_.status(failure()); }
  std::string dump() const { return report_.dump(failure()); }
  const OpStatistics& statistics() const { return statistics_; }
  // Returns the number of the last collective that was called.
  uint64_t last_called() const { return report_.last_called(); }
  // Frees OpExecutions that have ended. Must be called where none of them can be on the stack.
  void release_ended() { ended_.clear(); }

  // Implements ExecutionDelegate.
  bool is_oldest(const OpExecution& run) const override;
  bool departed(int peer) const override { return peers_[peer].departed(); }
  void fail(const Error& cause) override { fail(cause, /*tell_others=*/true); }
  void send_failed(int peer, const Error& cause) override;
  void finished(OpExecution& run) override;

 private:
  // Implements GroupServiceDelegate.
  const Topology& topology() const override { return flow.topology; }
  std::string describe_rank(int rank) const override { return peers_.describe_rank(rank); }
  void send_service_message(int rank, std::vector<std::byte> message) override;
  void set_needs_all_members(bool awaits) override;

  // Ends an op, counts it and records it in the trace.
  void finish(const std::shared_ptr<Op>& op, Error error) noexcept {
    progress.log.end(*op, progress.now, static_cast<bool>(error));
    statistics_.add(*op, progress.now, static_cast<bool>(error));
    if (progress.recorder) trace_op(*progress.recorder, config_.name, *op, error);
    delegate_.finish_op(op, std::move(error));
  }
  template <typename Body>
  void end_if_thrown(const std::shared_ptr<Op>& op, const Body& body);
  // Steps from the submission of an op to its start; see group.cc.
  void accept(std::shared_ptr<Op> op);
  void begin(std::shared_ptr<Op> op);
  void begin_on_device(std::shared_ptr<Op> op);
  void begin_barriers();
  // Counts data that came on eager credit. Returns an error if its sender had no credit for it.
  Error check_credit(const MessageHeader& header, size_t payload);
  // Gives a message to its execution if the fingerprints agree.
  void deliver(OpExecution& run, const MessageHeader& header, const Payload& payload);
  std::optional<Fingerprint> call_of(uint64_t number) const;
  bool agree(uint64_t number, int peer, const Fingerprint& theirs);
  void on_call_notice(const Notice& notice);
  // Floods a notice about this rank.
  void announce(NoticeKind kind, uint64_t number, const Fingerprint& fingerprint);

  // Checks that tick() and events run. Each may fail the group.
  void check_stall(const Op& op, TimePoint still_since);
  void check_deadlines();
  void check_pending_failure();
  void check_departures(uint64_t number);
  void check_departures();
  void check_deaths();
  // Fails the group with the cause, unless that is success.
  void fail_if(const Error& cause);
  void complete_sends_to(int peer);
  void time_out(const Op& op);
  void check_refused_sends();
  // Ends all ops of a failed group; continues where an earlier call ran out of memory.
  void end() noexcept;
  void retire(OpExecutionPtr&& run);
  Error error_of(const Op& op, const OpExecution* run) const;

  TimePoint now() const { return progress.now; }

  GroupDelegate& delegate_;
  const GroupConfig config_;
  const uint64_t nonce_;
  const uint32_t generation_;
  PeerTable peers_;
  GroupMessageSender sender_;
  DesyncDetector desync_;
  const WaitDiagnostics waits_;
  Collectives collectives_;
  PointToPoint point_to_point_;
  ServiceChannel service_channel_;
  const LostPeerCheck lost_peers_;
  const GroupReport report_;
  OpStatistics statistics_;
  std::vector<OpExecutionPtr> ended_;  // executions to free when none is on the stack
  FailureState failure_state_;
  std::optional<uint64_t> first_failed_;  // set when the group fails; see first_unfinished()
  FailureNotifier failure_notifier_{config_.on_failed};
};

}  // namespace ringdist
