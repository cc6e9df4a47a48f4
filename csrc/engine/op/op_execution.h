// One op being executed on one rank: moves the segments of its steps, and knows when all is done.
//
// Its group owns it. Every call comes with the driver token held; none comes after stop() but for
// the destructor's.
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

class OpExecution {
 public:
  // `number` is the op's on the wire.
  OpExecution(ExecutionDelegate& delegate, std::shared_ptr<Op> op, uint64_t number);
  ~OpExecution() { stop(); }
  OpExecution(const OpExecution&) = delete;
  OpExecution& operator=(const OpExecution&) = delete;

  // Queues every step that can run.
  void start();
  // A step that was queued: does at most one segment of it, and queues it again if there may be
  // more to do at once.
  void work(int step);
  void queue(int step) { state_.queue(step); }

  // What the matcher found for us; the header names an op with our number, from a rank of our
  // group.
  void on_data(const MessageHeader& header, const Payload& payload);
  void on_request(const MessageHeader& header);
  void on_grant(const MessageHeader& header);
  void on_sent(int step, int target, int64_t segment, const Error& error) {
    sender_.on_sent(step, target, segment, error);
  }
  // This op has become its group's oldest: its edges may now have their guaranteed slot.
  void grant_waiting();

  // The end, good or bad: nothing more is sent, received or written, and sends on their way are no
  // longer ours. The op's memory may change: what is still on its way of that is withdrawn.
  void stop();

  const std::shared_ptr<Op>& op() const { return state_.op; }
  uint64_t number() const { return state_.number; }
  int peer() const;  // the other end of a send or a receive
  bool wrote() const { return wrote_; }
  // Something that this rank is to receive from the peer has not come.
  bool waits_for(int peer) const { return state_.steps.waits_for(peer); }
  // Something that this rank is to send to the peer has not been sent.
  bool has_unsent_to(int peer) const { return state_.steps.has_unsent_to(peer); }
  // The peer is gone: what was sent to it counts as done.
  void complete_sends_to(int peer) { sender_.complete_sends(peer); }
  // A step may stand in the group's lists of those that wait for credit.
  bool has_waited_for_credit() const { return sender_.has_waited_for_credit(); }
  TimePoint last_progress() const { return state_.last_progress; }
  std::string dump() const { return state_.op->describe() + state_.steps.dump(); }

 private:
  // What arrived in place of a kept one, still in the transport's memory.
  struct Direct {
    int slot = -1;
    Payload payload;
    bool eager = false;
  };

  const CompiledStep& compiled(int step) const { return state_.compiled(step); }
  bool advance(int step);
  bool advance_copy(int step);
  bool advance_receive(int step);
  // Gives `held` to the step that is to send it.
  void hand_on(int step, int64_t segment, PooledBuffer held);

  bool arrived(int step, int64_t segment, int but_for) const;
  // Consumes the next segment of a step, all of whose sources have arrived: kept, but for `direct`.
  void consume(int step, const Direct& direct);
  bool reduce_and_send(int step, int64_t segment, const Payload& direct);
  // After it: gives back what it took of the peers' credit.
  void count_consumed(int step, const Direct& direct);
  void grant(int step, RecvEdge& in, bool unsolicited = false);
  void grant_unsolicited();
  int64_t grant_bytes(int step) {
    return static_cast<int64_t>(state_.arithmetic->most_bytes(step));
  }

  bool counts_agree(int step, const MessageHeader& header);
  void protocol_error(const MessageHeader& header, const std::string& what);

  ExecutionState state_;
  SegmentSender sender_;
  std::pmr::vector<ConstBytes> arrived_;  // of the segment that is being consumed, by slot
  bool wrote_ = false;
};

using OpExecutionPtr = Pooled<OpExecution>;

inline OpExecutionPtr make_execution(ExecutionDelegate& delegate, std::shared_ptr<Op> op,
                                     uint64_t number) {
  return make_pooled<OpExecution>(delegate.progress.memory, delegate, std::move(op), number);
}

// What whoever drives a lane does for its OpExecutions.
//
// Every call comes with the lane's driver token held.

// Works on a segment of the step that has waited the longest; there is one.
inline void run_next_step(ProgressState& progress) {
  const WorkItem item = progress.work.pop();
  item.run->work(item.step);
}

// A send has ended. Its OpExecution hears of it, if that has not; then the memory goes.
inline void complete_send(ProgressState& progress, SendId send_id, const Error& error) {
  const auto home = progress.completions.complete(send_id);
  if (!home || home->what.run == nullptr) return;
  home->what.run->on_sent(home->what.step, home->what.target, home->what.segment, error);
}

}  // namespace ringdist
