// Executes one op on one rank. It advances the op's steps segment by segment, receives messages,
// sends grants and reports when all steps are done. SegmentSender does the sending.
//
// The group owns the execution. Threads: the caller holds the lane's progress lock. After stop(),
// only stop(), the const functions and the destructor may be called.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/free_list_resource.h"
#include "base/payload.h"
#include "engine/op/execution_delegate.h"
#include "engine/op/execution_state.h"
#include "engine/op/message.h"
#include "engine/op/op.h"
#include "engine/op/progress_state.h"
#include "engine/op/segment_sender.h"

namespace ringdist {

// An op's steps under way on this rank. Errors of the op fail the whole group, through
// ExecutionDelegate::fail().
class OpExecution {
 public:
  // `number` identifies the op in message headers. `delegate` must outlive the execution.
  OpExecution(ExecutionDelegate& delegate, std::shared_ptr<Op> op, uint64_t number);
  ~OpExecution() { stop(); }
  OpExecution(const OpExecution&) = delete;
  OpExecution& operator=(const OpExecution&) = delete;

  // Queues every step and sends unsolicited grants. Reports an op without steps as finished. Call
  // once.
  void start();
  // Executes at most one segment of a step that was taken from the WorkQueue. If more may be
  // possible at once, it queues the step again.
  void work(int step);
  void queue(int step) { state_.queue(step); }

  // Process a message for this op. The caller has checked that the header has this op's number and
  // that its source is a rank of the group.
  void on_data(const MessageHeader& header, const Payload& payload);
  void on_request(const MessageHeader& header);
  void on_grant(const MessageHeader& header);
  // Processes the completion of a send, or its error.
  void on_sent(int step, int target, int64_t segment, const Error& error) {
    sender_.on_sent(step, target, segment, error);
  }
  // Retries grants that did not fit into the budget. Called when the op has become its group's
  // oldest, and periodically. The edges of the oldest op are guaranteed one segment.
  void grant_waiting();

  // Ends the execution, whether the op succeeded or failed. Nothing more is sent, received or
  // written. Payloads of sends in flight are revoked, because the op's memory may change from here
  // on. May be called again.
  void stop();

  const std::shared_ptr<Op>& op() const { return state_.op; }
  uint64_t number() const { return state_.number; }
  int peer() const;  // other end of a send or receive; not for collectives
  // Returns true if the op's output may have been modified.
  bool wrote() const { return wrote_; }
  // Returns true if a segment from the peer has not arrived.
  bool waits_for(int peer) const { return state_.steps.waits_for(peer); }
  // Returns true if a segment for the peer has not been given to the transport.
  bool has_unsent_to(int peer) const { return state_.steps.has_unsent_to(peer); }
  // Marks all sends to the peer as completed, because it has departed. May finish the op.
  void complete_sends_to(int peer) { sender_.complete_sends(peer); }
  // Returns true if a step may be registered with the group as waiting for eager credit.
  bool has_waited_for_credit() const { return sender_.has_waited_for_credit(); }
  // Returns when a segment was last written or sent.
  TimePoint last_progress() const { return state_.last_progress; }
  std::string dump() const { return state_.op->describe() + state_.steps.dump(); }

 private:
  // A payload that is consumed where the transport put it, without being kept first. `slot` is the
  // index of its edge, or -1 if there is none.
  struct Direct {
    int slot = -1;
    Payload payload;
    bool eager = false;
  };

  const CompiledStep& compiled(int step) const { return state_.compiled(step); }
  // Executes at most one segment of the step, or one per target of a send. Returns true if it did
  // anything.
  bool advance(int step);
  bool advance_copy(int step);
  bool advance_receive(int step);
  // Passes encoded bytes to the step that sends them, and queues that step.
  void hand_on(int step, int64_t segment, PooledBuffer held);

  // Returns true if all sources of the segment have arrived, not counting the slot `but_for`.
  bool arrived(int step, int64_t segment, int but_for) const;
  // Reduces or stores the next segment of a step, all sources of which have arrived. They have been
  // kept, except for `direct`.
  void consume(int step, const Direct& direct);
  // If the sum can be sent at once, reduces into the output and into the transport's memory in one
  // pass. Returns false, without effect, if not.
  bool reduce_and_send(int step, int64_t segment, const Payload& direct);
  // Releases the sources of the consumed segment: counts the eager credit they used and grants more
  // segments.
  void count_consumed(int step, const Direct& direct);
  // Sends a grant to the sender of the edge, if one is due and the budget permits. `unsolicited`:
  // the sender has not requested one.
  void grant(int step, RecvEdge& in, bool unsolicited = false);
  void grant_unsolicited();
  // Returns the memory that a grant reserves per segment.
  int64_t grant_bytes(int step) {
    return static_cast<int64_t>(state_.arithmetic->most_bytes(step));
  }

  // Checks the element count of an edge in the fingerprint. On a mismatch, fails the group and
  // returns false.
  bool counts_agree(int step, const MessageHeader& header);
  // Fails the group because of an invalid message; `what` completes the sentence about it.
  void protocol_error(const MessageHeader& header, const std::string& what);

  ExecutionState state_;
  SegmentSender sender_;
  std::pmr::vector<ConstBytes> arrived_;  // sources of the segment that is being consumed, by slot
  bool wrote_ = false;
};

using OpExecutionPtr = Pooled<OpExecution>;

// Makes an execution in the lane's memory.
inline OpExecutionPtr make_execution(ExecutionDelegate& delegate, std::shared_ptr<Op> op,
                                     uint64_t number) {
  return make_pooled<OpExecution>(delegate.progress.memory, delegate, std::move(op), number);
}

// Executes the step that has waited the longest in the WorkQueue, which must not be empty.
inline void run_next_step(ProgressState& progress) {
  const WorkItem item = progress.work.pop();
  item.run->work(item.step);
}

// Processes the completion of a send. Notifies the OpExecution if it is still running, then
// releases the memory that the send kept alive.
inline void complete_send(ProgressState& progress, SendId send_id, const Error& error) {
  const auto home = progress.completions.complete(send_id, progress.now);
  if (!home || home->what.run == nullptr) return;
  home->what.run->on_sent(home->what.step, home->what.target, home->what.segment, error);
}

}  // namespace ringdist
