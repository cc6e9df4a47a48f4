#include "engine/op/op_execution.h"

#include <algorithm>
#include <utility>

namespace ringdist {

OpExecution::OpExecution(ExecutionDelegate& delegate, std::shared_ptr<Op> op, uint64_t number)
    : state_(*this, delegate, std::move(op), number),
      sender_(state_),
      arrived_(&delegate.progress.memory) {}

void OpExecution::start() {
  state_.window.begin();
  if (state_.steps.all_done()) return state_.delegate.finished(*this);
  for (int step = 0; step < state_.steps.count(); ++step) queue(step);
  grant_unsolicited();
}

void OpExecution::stop() {
  if (!state_.ended()) state_.end();
}

void OpExecution::work(int step) {
  state_.taken(step);
  if (advance(step)) queue(step);
}

bool OpExecution::advance(int step) {
  if (state_.steps[step].done) return false;
  switch (compiled(step).step.kind) {
    case StepKind::kSend:
      return sender_.advance(step);
    case StepKind::kRecv:
    case StepKind::kReduce:
      return advance_receive(step);
    case StepKind::kRelay: {
      const bool received = advance_receive(step);
      return sender_.advance(step) || received;
    }
    case StepKind::kCopy:
      return advance_copy(step);
  }
  return false;
}

int OpExecution::peer() const {
  const Step& only = compiled(0).step;
  return only.kind == StepKind::kSend ? only.to[0] : only.from;
}

void OpExecution::hand_on(int step, int64_t segment, PooledBuffer held) {
  const bool relays = compiled(step).step.kind == StepKind::kRelay;
  const int sender = relays ? step : compiled(step).consumer;
  if (!held || sender < 0) return;
  state_.steps[sender].held[segment] = std::move(held);
  if (!relays) queue(sender);
}

bool OpExecution::advance_copy(int step) {
  StepProgress::StepState& one = state_.steps[step];
  if (!state_.steps.ready(step, one.written)) return false;
  wrote_ |= compiled(step).step.range.buffer == BufferId::kOutput;
  PooledBuffer held;
  if (const Error error = state_.arithmetic->copy(step, one.written, held)) {
    state_.fail(error);
    return false;
  }
  hand_on(step, one.written++, std::move(held));
  state_.after_progress(step);
  return true;
}

// ---- receiving

void OpExecution::on_data(const MessageHeader& header, const Payload& payload) {
  const auto end = state_.op->schedule->inbound.find({header.source, header.edge});
  if (end == state_.op->schedule->inbound.end())
    return protocol_error(header, "an edge that this op does not have");
  const auto [step, slot] = end->second;
  if (!counts_agree(step, header)) return;
  StepProgress::StepState& one = state_.steps[step];
  RecvEdge& in = one.in[slot];
  const int64_t segment = header.segment;
  if (!in.expects(segment)) return protocol_error(header, "which is out of range or came before");
  const bool eager = header.eager != 0;
  if (!eager && segment >= in.granted_until())
    return protocol_error(header, "for which it had no grant");
  if (!state_.arithmetic->accepts(step, segment, payload.size())) {
    // The sender has revoked it because it failed; this op will fail, too.
    if (!payload.still_valid()) return;
    return protocol_error(header,
                          std::to_string(payload.size()) + " bytes instead of " +
                              (state_.op->request.codec_map ? "at most " : "") +
                              std::to_string(state_.arithmetic->message_bytes(step, segment)));
  }
  state_.window.arrived(in.peer(), payload.size(), eager ? std::nullopt : in.answers_grant(segment),
                        state_.delegate.progress.now);
  if (segment == one.written && state_.steps.ready(step, segment) && arrived(step, segment, slot)) {
    consume(step, {slot, payload, eager});
  } else {
    PooledBuffer copy = pooled_copy(state_.delegate.progress.scratch, payload.bytes());
    if (!payload.still_valid()) return;
    in.keep(segment, {std::move(copy), eager});
    Statistics::add(state_.delegate.progress.statistics.messages_kept, 1);
    grant(step, in);
  }
  queue(step);
}

void OpExecution::on_grant(const MessageHeader& header) {
  const auto end = state_.op->schedule->outbound.find({header.source, header.edge});
  if (end == state_.op->schedule->outbound.end())
    return protocol_error(header, "a grant for an edge that this op does not have");
  sender_.on_grant(end->second.step, end->second.slot, header.segment);
}

bool OpExecution::arrived(int step, int64_t segment, int but_for) const {
  const auto& in = state_.steps[step].in;
  for (size_t slot = 0; slot < in.size(); ++slot)
    if (static_cast<int>(slot) != but_for && !in[slot].has(segment)) return false;
  return true;
}

bool OpExecution::advance_receive(int step) {
  const int64_t segment = state_.steps[step].written;
  if (segment == compiled(step).segments || !arrived(step, segment, -1) ||
      !state_.steps.ready(step, segment))
    return false;
  consume(step, {});
  return true;
}

void OpExecution::consume(int step, const Direct& direct) {
  StepProgress::StepState& one = state_.steps[step];
  const int64_t segment = one.written;
  arrived_.clear();
  for (size_t slot = 0; slot < one.in.size(); ++slot)
    arrived_.push_back(static_cast<int>(slot) == direct.slot
                           ? direct.payload.bytes()
                           : one.in[slot].kept(segment).data.bytes());
  const Step& what = compiled(step).step;
  wrote_ |= what.range.buffer == BufferId::kOutput && what.range.count > 0;
  const bool left = reduce_and_send(step, segment, direct.payload);
  PooledBuffer held;
  Error error;
  if (!left)
    error = what.kind == StepKind::kReduce
                ? state_.arithmetic->reduce(step, segment, arrived_, held)
                : state_.arithmetic->place(step, segment, arrived_[0], held);
  // The sender has revoked the payload, perhaps while it was read. The segment counts as not
  // written, and the op fails with the sender's.
  if (!direct.payload.still_valid()) return;
  if (error) return state_.fail(error);
  hand_on(step, segment, std::move(held));
  if (state_.ended()) return;  // a send may have failed and ended the op
  ++one.written;
  count_consumed(step, direct);
  state_.after_progress(step);
}

// Combines a reduce with the send of its sum. It writes the sum into the memory that the send
// leaves from, which saves a copy.
bool OpExecution::reduce_and_send(int step, int64_t segment, const Payload& direct) {
  const int sender = compiled(step).consumer;
  if (sender < 0 || state_.op->request.codec_map || compiled(step).step.kind != StepKind::kReduce)
    return false;
  PooledBuffer held;
  const ConstBytes sum = state_.arithmetic->view(sender, segment, held);
  if (held || !sender_.would_copy(sender, segment, sum)) return false;
  return sender_.send_staged(sender, sum.size(), [&](Bytes twin) -> std::optional<size_t> {
    state_.arithmetic->reduce_twice(step, segment, arrived_, twin);
    if (!direct.still_valid()) return std::nullopt;
    return twin.size();
  });
}

void OpExecution::count_consumed(int step, const Direct& direct) {
  StepProgress::StepState& one = state_.steps[step];
  const int64_t segment = one.written - 1;
  for (size_t slot = 0; slot < one.in.size(); ++slot) {
    RecvEdge& in = one.in[slot];
    const bool is_direct = static_cast<int>(slot) == direct.slot;
    if (is_direct ? direct.eager : in.kept(segment).eager) {
      EagerCredit& credit = state_.delegate.flow.eager[in.peer()];
      credit.consumed(arrived_[slot].size());
      if (credit.must_report()) state_.delegate.sender.report_credit(in.peer());
    }
    in.consume(grant_bytes(step));
    grant(step, in);
  }
}

// Sends grants before they are requested, to senders that start at once with their first edge to
// this rank and need more than eager credit. Without them, the senders would have to request
// grants, and where ranks share cores, an answer may take a time slice.
void OpExecution::grant_unsolicited() {
  if (state_.op->request.envelope) return;
  for (int step = 0; step < state_.steps.count(); ++step) {
    const CompiledStep& what = compiled(step);
    if (what.in.empty() || !what.after.empty()) continue;
    const bool fits = what.segments * grant_bytes(step) <= state_.delegate.flow.eager_window;
    for (RecvEdge& in : state_.steps[step].in) {
      if (fits && what.segments <= state_.window.unsolicited(step, in.peer())) continue;
      if (in.edge().edge == 0) grant(step, in, /*unsolicited=*/true);
    }
  }
}

// A sender requests grants by its first data or by a kRequest. An edge with one segment that came
// on eager credit never needs a grant.
void OpExecution::grant(int step, RecvEdge& in, bool unsolicited) {
  const int64_t window = state_.window.segments(step, in.peer());
  if (state_.ended() || !in.wants_grant(window)) return;
  const auto until = in.grant({window, grant_bytes(step), state_.delegate.is_oldest(*this),
                               unsolicited, state_.delegate.progress.now});
  if (!until) return;
  MessageHeader header{};
  header.type = unsolicited ? MessageType::kFirstGrant : MessageType::kGrant;
  header.fingerprint = state_.op->fingerprint;
  header.destination = in.peer();
  header.op = state_.number;
  header.edge = in.edge().edge;
  header.segment = static_cast<uint32_t>(*until);
  state_.delegate.sender.send_control(header);
}

void OpExecution::on_request(const MessageHeader& header) {
  const auto end = state_.op->schedule->inbound.find({header.source, header.edge});
  if (end == state_.op->schedule->inbound.end())
    return protocol_error(header, "a request for an edge that this op does not have");
  const auto [step, slot] = end->second;
  if (!counts_agree(step, header)) return;
  state_.steps[step].in[slot].ask();
  grant(step, state_.steps[step].in[slot]);
}

void OpExecution::grant_waiting() {
  for (int step = 0; step < state_.steps.count(); ++step)
    for (RecvEdge& in : state_.steps[step].in)
      if (in.state() == RecvEdge::State::kAwaited) grant(step, in);
}

// ---- checks and errors

// In an op with parts of different sizes, the ranks can only compare counts edge by edge.
bool OpExecution::counts_agree(int step, const MessageHeader& header) {
  const int64_t expected = compiled(step).step.range.count;
  if (!carries_fingerprint(header) || !header.fingerprint.of_edge ||
      header.fingerprint.count == expected)
    return true;
  state_.fail(Error(ErrorKind::kMismatch, "rank " + std::to_string(header.source) + " sends " +
                                              std::to_string(header.fingerprint.count) +
                                              " elements to rank " +
                                              std::to_string(state_.delegate.flow.rank) +
                                              ", which expects " + std::to_string(expected))
                  .blame(header.source));
  return false;
}

void OpExecution::protocol_error(const MessageHeader& header, const std::string& what) {
  state_.fail(Error(ErrorKind::kProtocol, "rank " + std::to_string(header.source) +
                                              " sent segment " + std::to_string(header.segment) +
                                              " of edge " + std::to_string(header.edge) + ", " +
                                              what)
                  .blame(header.source));
}

}  // namespace ringdist
