// One op being executed on one rank: cuts the schedule's ranges into segments, moves them, reduces
// what arrives straight out of the transport's memory, and knows when all is done.
//
// Lives on a lane: every call comes with the driver token held. Sends in flight hold it (and with
// it the caller's memory), so it may outlive its op's end and its group.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/op/coded_arithmetic.h"
#include "engine/op/message.h"
#include "engine/op/op.h"
#include "engine/op/scratch_pool.h"

namespace ringdist {

class Group;

class OpRun : public std::enable_shared_from_this<OpRun> {
 public:
  // `number` is the op's on the wire.
  OpRun(Group& group, std::shared_ptr<Op> op, uint64_t number);

  // Queues every step that can run.
  void start();
  // Does at most one segment of a step. True if there may be more to do at once.
  bool advance(int step);

  // What the matcher found for us; the header names an op with our number, from a rank of our
  // group.
  void on_data(const MessageHeader& header, ConstBytes payload);
  void on_request(const MessageHeader& header);
  void on_grant(const MessageHeader& header);
  // This op has become its group's oldest: its edges may now have their guaranteed slot.
  void grant_waiting();

  // The group failed: nothing more is sent, received or written.
  void stop();

  const std::shared_ptr<Op>& op() const { return op_; }
  uint64_t number() const { return number_; }
  int peer() const;  // the other end of a send or a receive
  bool wrote() const { return wrote_; }
  // Something that this rank is to receive from the peer has not come.
  bool waits_for(int peer) const;
  // Something that this rank is to send to the peer has not been sent.
  bool owes(int peer) const;
  // The peer is gone: what was sent to it counts as done.
  void forgive_sends(int peer);
  TimePoint last_progress() const { return last_progress_; }
  bool queued(int step) const { return steps_[step].queued; }
  void set_queued(int step, bool queued) { steps_[step].queued = queued; }

  std::string dump() const;

 private:
  struct Kept {
    PooledBlock data;
    bool early;
  };
  // The receiving end of an edge.
  struct In {
    std::map<int64_t, Kept> kept;  // by segment: arrived and not yet consumed
    int64_t granted = 0;           // segments below this may be sent to us
    int64_t promised = 0;          // bytes of the budget that stand behind the grant
    bool wanted = false;           // the sender waits for a grant
    // The first segment that some grant allowed and that has not come, and when that was.
    int64_t first_allowed = 0;
    TimePoint granted_at;
  };
  // The sending end of an edge.
  struct Out {
    int64_t issued = 0;
    int64_t granted = 0;
    bool requested = false;
    std::vector<bool> acked;  // segments whose send completed, beyond acked_prefix
    int64_t acked_prefix = 0;
  };
  struct StepRun {
    int64_t written = 0;  // segments received, reduced or copied
    std::vector<In> in;
    std::vector<Out> out;
    // What was encoded, here or by the rank that we relay for, until all targets were sent it.
    std::map<int64_t, EncodedBytes> encoded;
    bool queued = false;
    bool done = false;
  };

  const CompiledStep& compiled(int step) const { return op_->schedule->steps[step]; }
  const Buffer& buffer(BufferId id) const;
  Range slice(int step, const Range& range, int64_t segment) const;
  size_t segment_bytes(int step, int64_t segment) const;  // on the wire; at most, if compressed
  // What a granted segment may take: of a compressed op, they are of different lengths.
  int64_t promise_bytes(int step) const;
  bool ready(int step, int64_t segment) const;
  int64_t progress_of(int step, bool finished) const;  // elements
  void after_progress(int step);
  bool advance_copy(int step);
  void copy_segment(const Range& from, const Range& to);
  // Gives the send that follows a step what the step has encoded.
  void hand_on(int step, int64_t segment, EncodedBytes encoded);
  bool counts_agree(int step, const MessageHeader& header);
  void protocol_error(const MessageHeader& header, const std::string& what);

  // Segments that an edge may have on their way.
  static constexpr int64_t kWindow = 8;  // enough for loopback and for 10 Gb/s at 1 ms
  int64_t window(int step) const;
  int64_t most_unasked(int step) const;  // that may be sent before any grant, credit allowing
  bool limits_senders() const { return senders_ > 1; }

  // op_send.cc
  bool advance_send(int step);
  bool advance_send_encoded(int step);
  bool send_segment(int step, size_t target);
  bool may_send(int step, size_t target, size_t bytes, bool& early);
  MessageHeader data_header(int step, size_t target, int64_t segment, bool early) const;
  void on_all_sent(int step, int64_t segment, const Error& error);
  void on_sent(int step, size_t target, int64_t segment, const Error& error);

  // op_receive.cc
  bool advance_receive(int step);
  void note_arrival(const In& in, const MessageHeader& header, size_t bytes);
  bool arrived(int step, int64_t segment) const;
  // Consumes the next segment of a step, all of whose sources have arrived: kept, but for the one
  // that `direct` names, whose bytes are still in the transport's memory.
  void consume(int step, int direct, ConstBytes direct_bytes, bool direct_early);
  Error place(int step, int64_t segment, ConstBytes bytes);
  Error reduce_segment(int step, int64_t segment, const std::vector<ConstBytes>& arrived);
  Error reduce_encoded(int step, int64_t segment, const std::vector<ConstBytes>& arrived);
  void settle(int step, size_t slot, bool early, size_t bytes);
  void grant_unasked();
  void grant(int step, size_t slot, MessageType type = MessageType::kGrant);
  void set_promise(In& in, int64_t bytes);

  Group& group_;
  const std::shared_ptr<Op> op_;
  const uint64_t number_;
  Buffer scratch_;
  const std::shared_ptr<ScratchPool> scratch_pool_;
  const PooledBlock scratch_memory_;
  std::unique_ptr<Coder> coder_;  // null: uncompressed
  std::vector<StepRun> steps_;
  int unfinished_steps_ = 0;
  int senders_ = 0;  // of a compressed op: ranks that send to us
  bool stopped_ = false;
  bool wrote_ = false;
  TimePoint last_progress_;
};

}  // namespace ringdist
