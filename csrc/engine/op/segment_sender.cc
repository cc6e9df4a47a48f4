#include "engine/op/segment_sender.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/op/message.h"

namespace ringdist {

// Own values of a compressed op are encoded while they are sent. Values that a producer step or
// another rank has encoded are sent as they are.
bool SegmentSender::encodes(int step) const {
  const CompiledStep& compiled = state_.compiled(step);
  return state_.op->request.codec_map && compiled.step.kind == StepKind::kSend &&
         compiled.producer < 0;
}

bool SegmentSender::is_next_of_all(int step, int64_t segment) const {
  return std::ranges::all_of(state_.steps[step].out, [segment](const SendEdge& out) {
    return !out.all_sent() && out.next() == segment;
  });
}

bool SegmentSender::advance(int step) {
  StepProgress::StepState& one = state_.steps[step];
  if (one.out.empty()) return false;
  if (encodes(step)) return advance_encoded(step);
  if (const ConstBytes payload = to_be_shared(step); !payload.empty())
    return send_staged(step, payload.size(), [payload](Bytes out) {
      std::memcpy(out.data(), payload.data(), payload.size());
      return payload.size();
    });
  bool any = false;
  for (size_t target = 0; target < one.out.size() && !state_.ended(); ++target)
    any |= send_segment(step, static_cast<int>(target));
  return any;
}

// Encodes the next segment once, directly into the transport's memory, for all targets.
bool SegmentSender::advance_encoded(int step) {
  const SendEdge& first = state_.steps[step].out[0];
  const int64_t segment = first.next();
  if (first.all_sent() || !state_.steps.ready(step, segment)) return false;
  return send_staged(step, state_.arithmetic->message_bytes(step, segment),
                     [&](Bytes out) { return state_.arithmetic->encode(step, segment, out); });
}

// Only segments that the transport would copy for each of several targets are worth sharing.
ConstBytes SegmentSender::to_be_shared(int step) const {
  const auto& out = state_.steps[step].out;
  const int64_t segment = out[0].next();
  if (out.size() == 1 || out[0].all_sent() || state_.op->request.codec_map ||
      !state_.steps.is_there(step, segment))
    return {};
  PooledBuffer held;  // a segment in pieces is copied for each target anyway
  const ConstBytes payload = state_.arithmetic->view(step, segment, held);
  return !held && would_copy(step, segment, payload) ? payload : ConstBytes();
}

bool SegmentSender::would_copy(int step, int64_t segment, ConstBytes payload) const {
  return is_next_of_all(step, segment) &&
         state_.delegate.sender.would_copy(state_.compiled(step).out, payload);
}

// Sends the target's next segment from the op's memory, or its encoded form if there is one.
bool SegmentSender::send_segment(int step, int target) {
  StepProgress::StepState& one = state_.steps[step];
  SendEdge& out = one.out[target];
  if (one.done || out.all_sent()) return false;
  const int64_t segment = out.next();
  if (!state_.steps.is_there(step, segment)) return false;
  PooledBuffer held;
  ConstBytes payload;
  const auto encoded = one.held.find(segment);
  if (encoded != one.held.end()) {
    held = encoded->second;
    payload = held.bytes();
  } else {
    if (state_.op->request.codec_map) return false;  // not encoded yet
    payload = state_.arithmetic->view(step, segment, held);
  }
  bool eager = false;
  if (!may_send(step, target, payload.size(), eager)) return false;
  out.sent();
  if (encoded != one.held.end() &&
      std::ranges::all_of(one.out, [&](const SendEdge& each) { return each.next() > segment; }))
    one.held.erase(encoded);
  std::shared_ptr<const void> memory = state_.op;
  if (held) memory = held.owner();
  state_.delegate.sender.send(header(step, target, segment, eager), payload,
                              state_.issue(step, target, segment, std::move(memory)));
  return true;
}

bool SegmentSender::room_for_all(int step, size_t most) {
  const auto& out = state_.steps[step].out;
  headers_.clear();
  for (int target = 0; target < static_cast<int>(out.size()); ++target) {
    bool eager = false;
    if (!may_send(step, target, most, eager)) return false;
    headers_.push_back(header(step, target, out[target].next(), eager));
  }
  return true;
}

void SegmentSender::issue_all(int step, const StagedMessage& staged) {
  send_ids_.clear();
  for (int target = 0; target < static_cast<int>(headers_.size()); ++target)
    send_ids_.push_back(state_.issue(step, target, headers_[target].segment, staged.block.owner()));
}

void SegmentSender::commit(int step, const StagedMessage& staged, size_t used) {
  for (SendEdge& out : state_.steps[step].out) out.sent();
  state_.delegate.sender.commit(staged, used, headers_, send_ids_);
}

// A segment is sent on the edge's grant, else on the pair's eager credit. Without either, a grant
// is requested once.
bool SegmentSender::may_send(int step, int target, size_t bytes, bool& eager) {
  SendEdge& out = state_.steps[step].out[target];
  eager = !out.granted();
  if (!eager) return true;
  // It is unpredictable when a receive will be posted, so its rank should not have to keep much.
  const bool is_long = state_.op->request.envelope && bytes > kEagerBytes;
  const bool unsolicited = !is_long && out.next() < state_.window.unsolicited(step, out.peer());
  if (unsolicited && state_.delegate.flow.eager[out.peer()].allows(bytes)) return true;
  if (unsolicited) {
    has_waited_for_credit_ = true;
    state_.delegate.sender.await_credit(out.peer(), state_.run, step);
  }
  if (out.ask()) {
    MessageHeader request = header(step, target, out.next(), false);
    request.type = MessageType::kRequest;
    state_.delegate.sender.send_control(request);
  }
  return false;
}

MessageHeader SegmentSender::header(int step, int target, int64_t segment, bool eager) const {
  const Op& op = *state_.op;
  const EdgeId& edge = state_.steps[step].out[target].edge();
  MessageHeader header{};
  header.type = MessageType::kData;
  header.eager = eager;
  header.destination = edge.peer;
  header.op = state_.number;
  header.edge = edge.edge;
  header.segment = static_cast<uint32_t>(segment);
  header.fingerprint = op.fingerprint;
  if (op.fingerprint.count == Fingerprint::kPerEdge) {
    header.fingerprint.count = state_.compiled(step).step.range.count;
    header.fingerprint.of_edge = 1;
  }
  return header;
}

void SegmentSender::on_sent(int step, int target, int64_t segment, const Error& error) {
  state_.send_completed();
  SendEdge& out = state_.steps[step].out[target];
  if (segment < out.completed()) return;  // complete_sends() has already counted it
  if (error && !state_.delegate.departed(out.peer()))
    return state_.delegate.send_failed(out.peer(), error);
  if (out.complete(segment)) state_.after_progress(step);
}

void SegmentSender::complete_sends(int peer) {
  for (int step = 0; step < state_.steps.count(); ++step)
    for (SendEdge& out : state_.steps[step].out)
      if (!state_.ended() && out.peer() == peer && out.complete_sends())
        state_.after_progress(step);
}

void SegmentSender::on_grant(int step, int target, int64_t until) {
  state_.steps[step].out[target].grant(until);
  state_.queue(step);
}

}  // namespace ringdist
