// One rank's side of a group on a lane: gives what happens to those that it is for - ops, messages,
// notices, deaths, time - and ends the group where it cannot go on. The Communicator is what
// callers see of it.
//
// Every call comes with the lane's driver token held.
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

// What a Group needs of its lane.
class GroupDelegate {
 public:
  virtual ~GroupDelegate() = default;
  virtual ProgressState& progress_state() = 0;
  virtual void flood(const Notice& notice) = 0;
  // The op has an end: wake who waits for it, run its callbacks elsewhere.
  virtual void finish_op(const std::shared_ptr<Op>& op, Error error) noexcept = 0;
  // A group that was idle is not any more, by something it did on its own.
  virtual void on_busy() noexcept {}
};

struct GroupConfig {
  std::string name;
  int64_t eager_window = 0;             // bytes
  Duration warn_after{0};               // for whom an op waits is logged after this long; 0: never
  FailureNotifier::OnFailed on_failed;  // the first cause, once; may be called again if it throws
  std::shared_ptr<GroupService> service;  // null: there are no letters
};

class Group final : public ExecutionDelegate, private GroupServiceDelegate {
 public:
  static constexpr uint64_t kNoOp = std::numeric_limits<uint64_t>::max();

  Group(GroupDelegate& delegate, const GroupDescriptor& of, GroupConfig config);

  // Before anything else.
  void begin() { service_channel_.begin(*this); }
  // What it throws ends the group, and the op.
  void enqueue(const std::shared_ptr<Op>& op);
  // Of an op that has ended: its caller has the results.
  void output_delivered(uint64_t number);
  // A device has run the op, or says why not, which ends the group. Nothing if it has ended.
  void ended_on_device(const std::shared_ptr<Op>& op, const Error& error);
  void on_message(const MessageHeader& header, const Payload& payload);
  void on_notice(const Notice& notice);
  // Ends every op with the error and lets no later one begin. The first cause stays. `number`: the
  // op that it is about, if the others shall not finish that either though we have. What lacks
  // memory is done by a later tick().
  void fail(const Error& cause, bool tell_others, uint64_t number = kNoOp) noexcept;
  // The same for ops from a number on. Older ones have been given all they need, which may still be
  // on its way: they finish first, unless nothing of theirs comes in for half a second.
  void fail_from(uint64_t number, const Error& cause, bool tell_others);
  // The first collective that has not ended well here. Of a group that has failed: for good.
  uint64_t first_unfinished() const {
    return first_failed_ ? *first_failed_ : collectives_.last_ended() + 1;
  }
  // Aborts the receives that nothing has come for, and sends to oneself without a receive, because
  // the group is destroyed. Other ops go on. Notifies the other ranks. Returns the aborted ops.
  std::vector<std::string> abort_receives(const Error& cause);
  // Deadlines, stalls and broken connections; every few tens of milliseconds.
  void tick();
  // The connection to a member broke. It may have left in good order, or the control plane may know
  // more in a moment.
  void connection_lost(std::string_view transport, ContextId context, const Error& cause);
  // A process died, and what it had sent has been delivered: ends the group if an op still lacks
  // something of it, now or later. Else the op ends well, as it may have done on that process.
  void process_lost(ContextId context, const Error& cause);
  // A process has ended in good order, or lives on without ringdist; its groups have said which op
  // was their last, if they had one.
  void process_left(ContextId context);
  // Tells the others which op was the last, so that our end is not taken for a death. `how`: kLeave
  // or kExit.
  void announce_leave(NoticeKind how);

  int rank() const { return flow.rank; }
  int size() const { return flow.size; }
  // Nothing in flight, and no deadline to watch.
  bool idle() const;
  const Error& failure() const { return failure_state_.cause(); }
  GroupStatus status() const { return report_.status(failure()); }
  std::string dump() const { return report_.dump(failure()); }
  // Frees the OpExecutions that have ended, which may have been on the stack: called where none is.
  void release_ended() { ended_.clear(); }

  // ExecutionDelegate
  void send(MessageHeader header, ConstBytes payload, SendId send_id) override {
    sender_.send(header, payload, send_id);
  }
  void revoke_payload(int peer, SendId send_id) override { sender_.revoke_payload(peer, send_id); }
  void send_control(MessageHeader header) override { sender_.send_control(header); }
  bool would_copy(std::span<const EdgeId> to, ConstBytes payload) const override {
    return sender_.would_copy(to, payload);
  }
  StagedMessage reserve(std::span<const EdgeId> to, size_t bytes) override {
    return sender_.reserve(to, bytes);
  }
  void commit(const StagedMessage& staged, size_t used, std::span<MessageHeader> headers,
              std::span<const SendId> send_ids) override {
    sender_.commit(staged, used, headers, send_ids);
  }
  void report_credit(int peer) override { sender_.report_credit(peer); }
  void await_credit(int peer, OpExecution& run, int step) override {
    sender_.await_credit(peer, run, step);
  }
  bool is_oldest(const OpExecution& run) const override;
  bool departed(int peer) const override { return peers_[peer].departed(); }
  void fail(const Error& cause) override { fail(cause, /*tell_others=*/true); }
  void send_failed(int peer, const Error& cause) override;
  void finished(OpExecution& run) override;

 private:
  // GroupServiceDelegate
  const Topology& topology() const override { return flow.topology; }
  std::string describe_rank(int rank) const override { return peers_.describe_rank(rank); }
  void send_service_message(int rank, std::vector<std::byte> letter) override;
  void set_needs_all_members(bool awaits) override;

  void finish(const std::shared_ptr<Op>& op, Error error) noexcept {
    if (progress.recorder) trace_op(*progress.recorder, config_.name, *op, error);
    delegate_.finish_op(op, std::move(error));
  }
  template <typename Body>
  void end_if_thrown(const std::shared_ptr<Op>& op, const Body& body);
  void accept(std::shared_ptr<Op> op);
  void begin(std::shared_ptr<Op> op);
  void begin_on_device(std::shared_ptr<Op> op);
  void begin_barriers();
  void deliver(OpExecution& run, const MessageHeader& header, const Payload& payload);
  std::optional<Fingerprint> call_of(uint64_t number) const;
  bool agree(uint64_t number, int peer, const Fingerprint& theirs);
  void on_call_notice(const Notice& notice);
  void announce(NoticeKind kind, uint64_t number, const Fingerprint& fingerprint);

  void check_stall(const Op& op, TimePoint still_since);
  void check_deadlines();
  void check_pending_failure();
  void check_departures(uint64_t number);
  void check_departures();
  void check_deaths();
  void fail_if(const Error& cause);
  void complete_sends_to(int peer);
  void time_out(const Op& op);
  void check_refused_sends();
  void end() noexcept;
  void retire(OpExecutionPtr&& run);
  Error error_of(const Op& op, const OpExecution* run) const;

  TimePoint now() const { return progress.now; }

  GroupDelegate& delegate_;
  const GroupConfig config_;
  const uint64_t nonce_;
  const uint32_t generation_;
  PeerTable peers_;
  MessageSender sender_;
  DesyncDetector desync_;
  const WaitDiagnostics waits_;
  Collectives collectives_;
  PointToPoint point_to_point_;
  ServiceChannel service_channel_;
  const LostPeerCheck lost_peers_;
  const GroupReport report_;
  std::vector<OpExecutionPtr> ended_;
  FailureState failure_state_;
  std::optional<uint64_t> first_failed_;
  FailureNotifier failure_notifier_{config_.on_failed};
};

}  // namespace ringdist
