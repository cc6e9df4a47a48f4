#include "engine/op/run.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/op/send_name.h"

namespace ringdist {
namespace {

std::unique_ptr<Arithmetic> make_arithmetic(const Op& op, Port& port) {
  return op.request.blocks ? coded_arithmetic(op, port.flow.rank, port.flow.size, port.lane.scratch)
                           : plain_arithmetic(op, port.flow.size, port.lane.scratch);
}

}  // namespace

Run::Run(Port& port, std::shared_ptr<Op> op, uint64_t number)
    : port_(port),
      op_(std::move(op)),
      number_(number),
      arithmetic_(make_arithmetic(*op_, port)),
      steps_(*op_->schedule, port.lane.promises),
      window_(*op_, *arithmetic_, port.flow.inbound),
      last_progress_(port.lane.now) {}

void Run::start() {
  window_.begin();
  if (steps_.all_done()) return port_.finished(*this);
  for (int step = 0; step < steps_.count(); ++step) queue(step);
  grant_unasked();
}

void Run::stop() {
  if (state_ == State::kEnded) return;
  state_ = State::kEnded;
  window_.end(port_.lane.now);
  steps_.stop();
  if (queued_ > 0) port_.lane.work.forget(*this);
  if (tickets_ > 0) port_.lane.tickets.disown(*this);
}

void Run::queue(int step) {
  if (state_ == State::kEnded || std::exchange(steps_[step].queued, true)) return;
  ++queued_;
  port_.lane.work.push(*this, step);
}

void Run::work(int step) {
  --queued_;
  steps_[step].queued = false;
  if (advance(step)) queue(step);
}

bool Run::advance(int step) {
  if (steps_[step].done) return false;
  switch (compiled(step).step.kind) {
    case StepKind::kSend:
      return advance_send(step);
    case StepKind::kRecv:
    case StepKind::kReduce:
      return advance_receive(step);
    case StepKind::kRelay: {
      const bool received = advance_receive(step);
      return advance_send(step) || received;
    }
    case StepKind::kCopy:
      return advance_copy(step);
  }
  return false;
}

int Run::peer() const {
  const Step& only = compiled(0).step;
  return only.kind == StepKind::kSend ? only.to[0] : only.from;
}

// A segment of the step was written, or its send completed.
void Run::after_progress(int step) {
  last_progress_ = port_.lane.now;
  for (const int waiting : compiled(step).before) queue(waiting);
  if (steps_.settle(step) && steps_.all_done()) port_.finished(*this);
}

void Run::hand_on(int step, int64_t segment, HeldBytes held) {
  const bool relays = compiled(step).step.kind == StepKind::kRelay;
  const int sender = relays ? step : compiled(step).consumer;
  if (!held || sender < 0) return;
  steps_[sender].held[segment] = std::move(held);
  if (!relays) queue(sender);
}

bool Run::advance_copy(int step) {
  Steps::One& one = steps_[step];
  if (!steps_.ready(step, one.written)) return false;
  wrote_ |= compiled(step).step.range.buffer == BufferId::kOutput;
  HeldBytes held;
  if (const Error error = arithmetic_->copy(step, one.written, held)) {
    fail(error);
    return false;
  }
  hand_on(step, one.written++, std::move(held));
  after_progress(step);
  return true;
}

// ---- sending

bool Run::advance_send(int step) {
  Steps::One& one = steps_[step];
  if (one.out.empty()) return false;
  if (encodes(step)) return advance_send_encoded(step);
  bool any = false;
  for (size_t target = 0; target < one.out.size() && state_ == State::kRunning; ++target)
    any |= send_segment(step, static_cast<int>(target));
  return any;
}

// Sends the target's next segment from the op's memory, or what has been encoded of it.
bool Run::send_segment(int step, int target) {
  Steps::One& one = steps_[step];
  Outflow& out = one.out[target];
  if (one.done || out.all_sent()) return false;
  const int64_t segment = out.next();
  const bool there = steps_.writes(step) ? segment < one.written : steps_.ready(step, segment);
  if (!there) return false;
  HeldBytes held;
  ConstBytes payload;
  const auto encoded = one.held.find(segment);
  if (encoded != one.held.end()) {
    held = encoded->second;
    payload = held.bytes();
  } else {
    if (op_->request.blocks) return false;  // not encoded yet
    payload = arithmetic_->view(step, segment, held);
  }
  bool early = false;
  if (!may_send(step, target, payload.size(), early)) return false;
  out.sent();
  if (encoded != one.held.end() &&
      std::ranges::all_of(one.out, [&](const Outflow& each) { return each.next() > segment; }))
    one.held.erase(encoded);
  const std::shared_ptr<const void> memory = held ? held.owner() : op_;
  port_.send(data_header(step, target, segment, early), payload,
             issue(step, target, segment, memory));
  return true;
}

// Encodes the next segment once, straight into the transport's memory, for all targets together.
bool Run::advance_send_encoded(int step) {
  Steps::One& one = steps_[step];
  const int64_t segment = one.out[0].next();
  if (one.out[0].all_sent() || !steps_.ready(step, segment)) return false;
  const size_t most = arithmetic_->message_bytes(step, segment);
  std::vector<MessageHeader> headers;
  for (size_t target = 0; target < one.out.size(); ++target) {
    bool early = false;
    if (!may_send(step, static_cast<int>(target), most, early)) return false;
    headers.push_back(data_header(step, static_cast<int>(target), segment, early));
  }
  std::vector<Ticket> tickets(headers.size());
  const Staged staged = port_.reserve(compiled(step).out, most);
  size_t used = 0;
  try {
    used = arithmetic_->encode(step, segment, staged.bytes);
    for (size_t target = 0; target < tickets.size(); ++target)
      tickets[target] = issue(step, static_cast<int>(target), segment, staged.block.owner());
  } catch (...) {
    port_.give_back(staged);
    throw;
  }
  for (Outflow& out : one.out) out.sent();
  port_.commit(staged, used, headers, tickets);
  return true;
}

// By the edge's grant, else by the pair's early credit; else asks for a grant, once.
bool Run::may_send(int step, int target, size_t bytes, bool& early) {
  Outflow& out = steps_[step].out[target];
  early = !out.granted();
  if (!early) return true;
  // Whether and when a receive will be posted is anybody's guess: its rank is not to park much.
  const bool is_long = op_->request.endpoint && bytes > kEagerBytes;
  const bool unasked = !is_long && out.next() < window_.unasked(step);
  if (unasked && port_.flow.early[out.peer()].allows(bytes)) return true;
  if (unasked) {
    has_waited_for_credit_ = true;
    port_.when_credit_returns(out.peer(), *this, step);
  }
  if (out.ask()) {
    MessageHeader header = data_header(step, target, out.next(), false);
    header.type = MessageType::kRequest;
    port_.send_control(header);
  }
  return false;
}

MessageHeader Run::data_header(int step, int target, int64_t segment, bool early) const {
  const EdgeName& edge = steps_[step].out[target].edge();
  MessageHeader header{};
  header.type = MessageType::kData;
  header.early = early;
  header.destination = edge.peer;
  header.op = number_;
  header.edge = edge.edge;
  header.segment = static_cast<uint32_t>(segment);
  header.fingerprint = op_->fingerprint;
  if (op_->fingerprint.count == Fingerprint::kPerEdge) {
    header.fingerprint.count = compiled(step).step.range.count;
    header.fingerprint.of_edge = 1;
  }
  return header;
}

Ticket Run::issue(int step, int target, int64_t segment, std::shared_ptr<const void> memory) {
  ++tickets_;  // of one that is not issued, too: the op ends then
  return port_.lane.tickets.issue({this, step, target, segment}, std::move(memory));
}

void Run::on_sent(int step, int target, int64_t segment, const Error& error) {
  --tickets_;
  Outflow& out = steps_[step].out[target];
  if (segment < out.completed()) return;  // forgiven
  if (error && !port_.gone(out.peer())) return port_.send_failed(out.peer(), error);
  if (out.complete(segment)) after_progress(step);
}

void Run::forgive_sends(int peer) {
  for (int step = 0; step < steps_.count(); ++step)
    for (Outflow& out : steps_[step].out)
      if (state_ == State::kRunning && out.peer() == peer && out.forgive()) after_progress(step);
}

void Run::on_grant(const MessageHeader& header) {
  const auto end = op_->schedule->outbound.find({header.source, header.edge});
  if (end == op_->schedule->outbound.end())
    return protocol_error(header, "a grant for an edge that this op does not have");
  const auto [step, target] = end->second;
  steps_[step].out[target].grant(header.segment);
  queue(step);
}

// ---- receiving

void Run::on_data(const MessageHeader& header, ConstBytes payload) {
  const auto end = op_->schedule->inbound.find({header.source, header.edge});
  if (end == op_->schedule->inbound.end())
    return protocol_error(header, "an edge that this op does not have");
  const auto [step, slot] = end->second;
  if (!counts_agree(step, header)) return;
  Steps::One& one = steps_[step];
  Inflow& in = one.in[slot];
  const int64_t segment = header.segment;
  if (!in.expects(segment)) return protocol_error(header, "which is out of range or came before");
  if (!arithmetic_->accepts(step, segment, payload.size()))
    return protocol_error(header, std::to_string(payload.size()) + " bytes instead of " +
                                      (op_->request.blocks ? "at most " : "") +
                                      std::to_string(arithmetic_->message_bytes(step, segment)));
  const bool early = header.early != 0;
  window_.arrived(payload.size(), early ? std::nullopt : in.answers_grant(segment), port_.lane.now);
  if (segment == one.written && steps_.ready(step, segment) && arrived(step, segment, slot)) {
    consume(step, {slot, payload, early});
  } else {
    in.keep(segment, {held_copy(port_.lane.scratch, payload), early});
    Statistics::add(port_.lane.statistics.messages_kept, 1);
    grant(step, in);
  }
  queue(step);
}

bool Run::arrived(int step, int64_t segment, int but_for) const {
  const auto& in = steps_[step].in;
  for (size_t slot = 0; slot < in.size(); ++slot)
    if (static_cast<int>(slot) != but_for && !in[slot].has(segment)) return false;
  return true;
}

bool Run::advance_receive(int step) {
  const int64_t segment = steps_[step].written;
  if (segment == compiled(step).segments || !arrived(step, segment, -1) ||
      !steps_.ready(step, segment))
    return false;
  consume(step, {});
  return true;
}

void Run::consume(int step, const Direct& direct) {
  Steps::One& one = steps_[step];
  const int64_t segment = one.written;
  std::vector<ConstBytes> bytes;
  std::vector<bool> early;
  for (size_t slot = 0; slot < one.in.size(); ++slot) {
    const bool is_direct = static_cast<int>(slot) == direct.slot;
    bytes.push_back(is_direct ? direct.bytes : one.in[slot].kept(segment).data.bytes());
    early.push_back(is_direct ? direct.early : one.in[slot].kept(segment).early);
  }
  const Step& what = compiled(step).step;
  wrote_ |= what.range.buffer == BufferId::kOutput && what.range.count > 0;
  HeldBytes held;
  const Error error = what.kind == StepKind::kReduce
                          ? arithmetic_->reduce(step, segment, bytes, held)
                          : arithmetic_->place(step, segment, bytes[0], held);
  if (error) return fail(error);
  hand_on(step, segment, std::move(held));
  ++one.written;
  for (size_t slot = 0; slot < one.in.size(); ++slot) {
    Inflow& in = one.in[slot];
    if (early[slot]) {
      EarlyCredit& credit = port_.flow.early[in.peer()];
      credit.consumed(bytes[slot].size());
      if (credit.must_report()) port_.report_credit(in.peer());
    }
    in.consume(promise_bytes(step));
    grant(step, in);
  }
  after_progress(step);
}

// Senders that start at once (with their first edge to us) and have more for us than their early
// credit, or than a slow link lets them send unasked, are told before they ask: where ranks share
// cores, an answer may take a time slice.
void Run::grant_unasked() {
  if (op_->request.endpoint) return;
  for (int step = 0; step < steps_.count(); ++step) {
    const CompiledStep& what = compiled(step);
    if (what.in.empty() || !what.after.empty()) continue;
    if (what.segments <= window_.unasked(step) &&
        what.segments * promise_bytes(step) <= port_.flow.early_window)
      continue;
    for (Inflow& in : steps_[step].in)
      if (in.edge().edge == 0) grant(step, in, /*unasked=*/true);
  }
}

// An edge asks by its first data or by a request; single-segment edges that came on early credit
// never need a grant.
void Run::grant(int step, Inflow& in, bool unasked) {
  const int64_t window = window_.segments(step);
  if (state_ == State::kEnded || !in.wants_grant(window)) return;
  const auto until =
      in.grant({window, promise_bytes(step), port_.is_oldest(*this), unasked, port_.lane.now});
  if (!until) return;
  MessageHeader header{};
  header.type = unasked ? MessageType::kFirstGrant : MessageType::kGrant;
  header.fingerprint = op_->fingerprint;
  header.destination = in.peer();
  header.op = number_;
  header.edge = in.edge().edge;
  header.segment = static_cast<uint32_t>(*until);
  port_.send_control(header);
}

void Run::on_request(const MessageHeader& header) {
  const auto end = op_->schedule->inbound.find({header.source, header.edge});
  if (end == op_->schedule->inbound.end())
    return protocol_error(header, "a request for an edge that this op does not have");
  const auto [step, slot] = end->second;
  if (!counts_agree(step, header)) return;
  steps_[step].in[slot].ask();
  grant(step, steps_[step].in[slot]);
}

void Run::grant_waiting() {
  for (int step = 0; step < steps_.count(); ++step)
    for (Inflow& in : steps_[step].in)
      if (in.state() == Inflow::State::kAwaited) grant(step, in);
}

// ---- words

// Ranks of an op with parts of their own sizes can compare them edge by edge only.
bool Run::counts_agree(int step, const MessageHeader& header) {
  const int64_t expected = compiled(step).step.range.count;
  if (!carries_fingerprint(header) || !header.fingerprint.of_edge ||
      header.fingerprint.count == expected)
    return true;
  fail(Error(ErrorKind::kMismatch, "rank " + std::to_string(header.source) + " sends " +
                                       std::to_string(header.fingerprint.count) +
                                       " elements to rank " + std::to_string(port_.flow.rank) +
                                       ", which expects " + std::to_string(expected))
           .blame(header.source));
  return false;
}

void Run::protocol_error(const MessageHeader& header, const std::string& what) {
  fail(Error(ErrorKind::kProtocol, "rank " + std::to_string(header.source) + " sent segment " +
                                       std::to_string(header.segment) + " of edge " +
                                       std::to_string(header.edge) + ", " + what)
           .blame(header.source));
}

}  // namespace ringdist
