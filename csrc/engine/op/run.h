// One op being executed on one rank: moves the segments of its steps, and knows when all is done.
//
// Its group owns it. Every call comes with the driver token held; none comes after stop() but for
// the destructor's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "engine/op/arithmetic.h"
#include "engine/op/edge_window.h"
#include "engine/op/message.h"
#include "engine/op/op.h"
#include "engine/op/port.h"
#include "engine/op/steps.h"

namespace ringdist {

class Run {
 public:
  // `number` is the op's on the wire.
  Run(Port& port, std::shared_ptr<Op> op, uint64_t number);
  ~Run() { stop(); }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Queues every step that can run.
  void start();
  // A step that was queued: does at most one segment of it, and queues it again if there may be
  // more to do at once.
  void work(int step);
  void queue(int step);

  // What the matcher found for us; the header names an op with our number, from a rank of our
  // group.
  void on_data(const MessageHeader& header, ConstBytes payload);
  void on_request(const MessageHeader& header);
  void on_grant(const MessageHeader& header);
  // The transport needs a segment's memory no more.
  void on_sent(int step, int target, int64_t segment, const Error& error);
  // This op has become its group's oldest: its edges may now have their guaranteed slot.
  void grant_waiting();

  // The end, good or bad: nothing more is sent, received or written, and sends on their way are no
  // longer ours.
  void stop();

  const std::shared_ptr<Op>& op() const { return op_; }
  uint64_t number() const { return number_; }
  int peer() const;  // the other end of a send or a receive
  bool wrote() const { return wrote_; }
  // Something that this rank is to receive from the peer has not come.
  bool waits_for(int peer) const { return steps_.waits_for(peer); }
  // Something that this rank is to send to the peer has not been sent.
  bool owes(int peer) const { return steps_.owes(peer); }
  // The peer is gone: what was sent to it counts as done.
  void forgive_sends(int peer);
  // A step may stand in the group's lists of those that wait for credit.
  bool has_waited_for_credit() const { return has_waited_for_credit_; }
  TimePoint last_progress() const { return last_progress_; }
  std::string dump() const { return op_->describe() + steps_.dump(); }

 private:
  enum class State : uint8_t { kRunning, kEnded };

  // What arrived in place of a kept one, still in the transport's memory.
  struct Direct {
    int slot = -1;
    ConstBytes bytes;
    bool early = false;
  };

  const CompiledStep& compiled(int step) const { return steps_.compiled(step); }
  bool advance(int step);
  bool advance_copy(int step);
  bool advance_receive(int step);
  // Own values of a compressed op, where they leave from; what a producer or another rank has
  // encoded is sent as it is.
  bool encodes(int step) const {
    return op_->request.blocks && compiled(step).step.kind == StepKind::kSend &&
           compiled(step).producer < 0;
  }
  bool advance_send(int step);
  bool advance_send_encoded(int step);
  bool send_segment(int step, int target);
  bool may_send(int step, int target, size_t bytes, bool& early);
  MessageHeader data_header(int step, int target, int64_t segment, bool early) const;
  Ticket issue(int step, int target, int64_t segment, std::shared_ptr<const void> memory);
  void after_progress(int step);
  // Gives `held` to the step that is to send it.
  void hand_on(int step, int64_t segment, HeldBytes held);

  bool arrived(int step, int64_t segment, int but_for) const;
  // Consumes the next segment of a step, all of whose sources have arrived: kept, but for `direct`.
  void consume(int step, const Direct& direct);
  void grant(int step, Inflow& in, bool unasked = false);
  void grant_unasked();
  int64_t promise_bytes(int step) { return static_cast<int64_t>(arithmetic_->most_bytes(step)); }

  bool counts_agree(int step, const MessageHeader& header);
  void protocol_error(const MessageHeader& header, const std::string& what);
  void fail(const Error& error) { port_.fail(error.prefixed(op_->describe() + ": ")); }

  Port& port_;
  const std::shared_ptr<Op> op_;
  const uint64_t number_;
  const std::unique_ptr<Arithmetic> arithmetic_;
  Steps steps_;
  EdgeWindow window_;
  State state_ = State::kRunning;
  int queued_ = 0;   // steps in the lane's queue
  int tickets_ = 0;  // sends on their way
  bool has_waited_for_credit_ = false;
  bool wrote_ = false;
  TimePoint last_progress_;
};

}  // namespace ringdist
