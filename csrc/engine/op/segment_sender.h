// Sending half of an OpExecution. It sends a segment as soon as its data is available and the
// receiver has permitted it by a grant or by eager credit.
//
// Most segments are sent from the op's memory. Others are staged, which means written directly into
// the memory that they leave from. Staged are values that this rank encodes, segments for several
// targets, and sums that their reduce stores twice.
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <optional>
#include <vector>

#include "engine/op/execution_state.h"
#include "engine/op/message.h"

namespace ringdist {

// Sends the segments of all steps of one op. Works on the ExecutionState of its OpExecution, which
// must outlive it.
class SegmentSender {
 public:
  explicit SegmentSender(ExecutionState& state)
      : state_(state),
        headers_(&state.delegate.progress.memory),
        send_ids_(&state.delegate.progress.memory) {}
  SegmentSender(const SegmentSender&) = delete;
  SegmentSender& operator=(const SegmentSender&) = delete;

  // Sends at most one segment to each target of the step. Returns true if any was sent.
  bool advance(int step);
  // Sends the next segment of the step to all its targets at once, from staged memory of `most`
  // bytes. write(Bytes) fills the memory and returns the number of bytes used, or nothing if the
  // segment must not be sent after all. If a target may not be sent to yet, returns false and
  // writes nothing. If `write` throws, the memory is released.
  template <typename Write>
  bool send_staged(int step, size_t most, const Write& write) {
    if (!room_for_all(step, most)) return false;
    const StagedMessage staged = state_.delegate.sender.reserve(state_.compiled(step).out, most);
    std::optional<size_t> used;
    try {
      used = write(staged.bytes);
      if (used) issue_all(step, staged);
    } catch (...) {
      state_.delegate.sender.give_back(staged);
      throw;
    }
    if (used)
      commit(step, staged, *used);
    else
      state_.delegate.sender.give_back(staged);
    return true;
  }
  // Returns true if `payload` is the next segment of the step for all targets, and the transport
  // would copy it for each. Writing it to staged memory then saves copies.
  bool would_copy(int step, int64_t segment, ConstBytes payload) const;

  // Processes a grant of all segments below `until` on the edge to `target`.
  void on_grant(int step, int target, int64_t until);
  // Processes the completion of a send. An error is reported to the group unless the peer has
  // departed.
  void on_sent(int step, int target, int64_t segment, const Error& error);
  // Marks all sends to the peer as completed, because it has departed.
  void complete_sends(int peer);
  // Returns true if a step may be registered with the group as waiting for eager credit.
  bool has_waited_for_credit() const { return has_waited_for_credit_; }

 private:
  // Returns true if this rank encodes the values that the step sends.
  bool encodes(int step) const;
  // Returns true if no target has been sent the segment, and all have been sent the ones before.
  bool is_next_of_all(int step, int64_t segment) const;
  bool advance_encoded(int step);
  // Returns the next segment if it is to be staged for several targets; else nothing.
  ConstBytes to_be_shared(int step) const;
  bool send_segment(int step, int target);
  // Returns true if the next segment may be sent to the target, and sets `eager` if that is on
  // eager credit. Otherwise requests a grant or registers the step as waiting for credit.
  bool may_send(int step, int target, size_t bytes, bool& eager);
  // Returns true if may_send() permits `most` bytes for every target. Fills `headers_`.
  bool room_for_all(int step, size_t most);
  // Issues a send id per target into `send_ids_`.
  void issue_all(int step, const StagedMessage& staged);
  // Sends the first `used` staged bytes to all targets.
  void commit(int step, const StagedMessage& staged, size_t used);
  // Makes the header of a data message.
  MessageHeader header(int step, int target, int64_t segment, bool eager) const;

  ExecutionState& state_;
  // Headers and send ids of the segment that is being sent to all targets of a step.
  std::pmr::vector<MessageHeader> headers_;
  std::pmr::vector<SendId> send_ids_;
  bool has_waited_for_credit_ = false;
};

}  // namespace ringdist
