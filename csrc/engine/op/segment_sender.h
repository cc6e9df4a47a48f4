// The sending half of a OpExecution. A segment leaves when it is there and its receiver has room:
// out of the op's memory, or written where it leaves from - what is encoded, what goes to several,
// and sums that their reduce stores twice.
//
// Every call comes with the lane's driver token held.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <optional>
#include <vector>

#include "engine/op/execution_state.h"
#include "engine/op/message.h"

namespace ringdist {

class SegmentSender {
 public:
  explicit SegmentSender(ExecutionState& state)
      : state_(state),
        headers_(&state.delegate.progress.memory),
        tickets_(&state.delegate.progress.memory) {}
  SegmentSender(const SegmentSender&) = delete;
  SegmentSender& operator=(const SegmentSender&) = delete;

  // At most a segment to each target of the step. True if any left.
  bool advance(int step);
  // The next segment of the step to all its targets at once, if they have room: write(Bytes) puts
  // it there and returns how much of that it used, or nothing: then it is not sent. False, and
  // nothing was written, if it has to wait. What `write` throws gives the memory back.
  template <typename Write>
  bool send_staged(int step, size_t most, const Write& write) {
    if (!room_for_all(step, most)) return false;
    const StagedMessage staged = state_.delegate.reserve(state_.compiled(step).out, most);
    std::optional<size_t> used;
    try {
      used = write(staged.bytes);
      if (used) issue_all(step, staged);
    } catch (...) {
      state_.delegate.give_back(staged);
      throw;
    }
    if (used)
      commit(step, staged, *used);
    else
      state_.delegate.give_back(staged);
    return true;
  }
  // The segment, `payload`, is the next of the step for all its targets, and the transport would
  // make a copy of it for each: to write it where it leaves from saves that.
  bool would_copy(int step, int64_t segment, ConstBytes payload) const;

  // The receiver has slots for the edge's segments below `until`.
  void on_grant(int step, int target, int64_t until);
  // The transport needs a segment's memory no more.
  void on_sent(int step, int target, int64_t segment, const Error& error);
  // The peer is gone: what was sent to it counts as done.
  void complete_sends(int peer);
  // A step may stand in the group's lists of those that wait for credit.
  bool has_waited_for_credit() const { return has_waited_for_credit_; }

 private:
  bool encodes(int step) const;
  bool is_next_of_all(int step, int64_t segment) const;
  bool advance_encoded(int step);
  ConstBytes to_be_shared(int step) const;
  bool send_segment(int step, int target);
  bool may_send(int step, int target, size_t bytes, bool& eager);
  bool room_for_all(int step, size_t most);
  void issue_all(int step, const StagedMessage& staged);
  void commit(int step, const StagedMessage& staged, size_t used);
  MessageHeader header(int step, int target, int64_t segment, bool eager) const;

  ExecutionState& state_;
  // Of the segment that is about to leave for all targets of a step.
  std::pmr::vector<MessageHeader> headers_;
  std::pmr::vector<SendId> tickets_;
  bool has_waited_for_credit_ = false;
};

}  // namespace ringdist
