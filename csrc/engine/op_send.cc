// The sending half of OpRun.
#include <algorithm>

#include "engine/group.h"
#include "engine/op/run.h"

namespace ringdist {

bool OpRun::advance_send(int step) {
  const CompiledStep& compiled_step = compiled(step);
  if (compiled_step.out.empty()) return false;
  const bool relay = compiled_step.step.kind == StepKind::kRelay;
  if (coder_ && !relay && compiled_step.producer < 0) return advance_send_encoded(step);
  bool any = false;
  for (size_t target = 0; target < compiled_step.out.size(); ++target)
    any |= send_segment(step, target);
  return any;
}

// Sends the target's next segment from the caller's memory, or a relay's as it came.
bool OpRun::send_segment(int step, size_t target) {
  if (stopped_ || steps_[step].done) return false;
  const CompiledStep& compiled_step = compiled(step);
  StepRun& run = steps_[step];
  const int64_t segment = run.out[target].issued;
  if (segment == compiled_step.segments) return false;
  const bool relay = compiled_step.step.kind == StepKind::kRelay;
  if (relay ? segment >= run.written : !ready(step, segment)) return false;
  if (coder_ && !run.encoded.contains(segment)) return false;

  EncodedBytes held;
  ConstBytes payload;
  if (auto it = run.encoded.find(segment); it != run.encoded.end()) {
    held = it->second;
    payload = *held;
  } else {
    const Range part = slice(step, compiled_step.step.range, segment);
    payload = buffer(part.buffer).contiguous(part.offset, part.count);
    if (payload.data() == nullptr && part.count > 0) {  // it straddles two spans
      held = std::make_shared<std::vector<std::byte>>(segment_bytes(step, segment));
      buffer(part.buffer).copy_to(part.offset, part.count, held->data());
      payload = *held;
    }
  }
  bool early = false;
  if (!may_send(step, target, payload.size(), early)) return false;
  ++run.out[target].issued;
  if (held && std::all_of(run.out.begin(), run.out.end(),
                          [&](const Out& out) { return out.issued > segment; }))
    run.encoded.erase(segment);
  group_.send_data(data_header(step, target, segment, early), payload,
                   [self = shared_from_this(), held, step, target, segment](const Error& error) {
                     self->on_sent(step, static_cast<size_t>(target), segment, error);
                   });
  return true;
}

// Encodes the next segment once, straight into the transport's memory, for all targets together.
bool OpRun::advance_send_encoded(int step) {
  const CompiledStep& compiled_step = compiled(step);
  StepRun& run = steps_[step];
  const int64_t segment = run.out[0].issued;
  if (segment == compiled_step.segments || !ready(step, segment)) return false;
  const size_t most = segment_bytes(step, segment);

  std::vector<bool> early(run.out.size());
  for (size_t target = 0; target < run.out.size(); ++target) {
    bool is_early = false;
    if (!may_send(step, target, most, is_early)) return false;
    early[target] = is_early;
  }
  const Staged staged = group_.reserve(compiled_step.out, most);
  const size_t used = coder_->encode(step, segment, staged.bytes);

  std::vector<MessageHeader> headers;
  for (size_t target = 0; target < run.out.size(); ++target) {
    ++run.out[target].issued;
    headers.push_back(data_header(step, target, segment, early[target]));
  }
  group_.commit(staged, used, headers,
                [self = shared_from_this(), step, segment](const Error& error) {
                  self->on_all_sent(step, segment, error);
                });
  return true;
}

// One error for all targets: it concerns those that can no longer be reached, if there are any.
void OpRun::on_all_sent(int step, int64_t segment, const Error& error) {
  if (stopped_) return;  // the group may be gone
  const auto& out = compiled(step).out;
  const bool some_lost = std::any_of(
      out.begin(), out.end(), [&](const EdgeName& edge) { return !group_.reaches(edge.peer); });
  for (size_t target = 0; target < out.size(); ++target) {
    const bool its_own = !some_lost || !group_.reaches(out[target].peer);
    on_sent(step, target, segment, its_own ? error : Error());
  }
}

// By the edge's grant, else by the pair's early credit; else asks for a grant, once.
bool OpRun::may_send(int step, size_t target, size_t bytes, bool& early) {
  Out& out = steps_[step].out[target];
  const EdgeName& edge = compiled(step).out[target];
  early = out.issued >= out.granted;
  if (!early) return true;
  // Whether and when a receive will be posted is anybody's guess: its rank is not to park much.
  const bool is_long = op_->request.endpoint && bytes > kEagerBytes;
  const bool unasked = !is_long && out.issued < most_unasked(step);
  if (unasked && group_.early(edge.peer).allows(bytes)) return true;
  if (unasked) group_.when_credit_returns(edge.peer, *this, step);
  if (!out.requested) {
    out.requested = true;
    MessageHeader header = data_header(step, target, out.issued, false);
    header.type = MessageType::kRequest;
    group_.send_control(header);
  }
  return false;
}

MessageHeader OpRun::data_header(int step, size_t target, int64_t segment, bool early) const {
  const EdgeName& edge = compiled(step).out[target];
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

bool OpRun::owes(int peer) const {
  for (size_t step = 0; step < steps_.size(); ++step) {
    const CompiledStep& compiled_step = compiled(static_cast<int>(step));
    for (size_t target = 0; target < compiled_step.out.size(); ++target)
      if (compiled_step.out[target].peer == peer &&
          steps_[step].out[target].issued < compiled_step.segments)
        return true;
  }
  return false;
}

void OpRun::forgive_sends(int peer) {
  const auto self = shared_from_this();
  for (size_t step = 0; step < steps_.size(); ++step)
    for (size_t target = 0; target < steps_[step].out.size(); ++target)
      if (compiled(static_cast<int>(step)).out[target].peer == peer)
        for (int64_t segment = 0; segment < steps_[step].out[target].issued; ++segment)
          on_sent(static_cast<int>(step), target, segment, {});
}

void OpRun::on_sent(int step, size_t target, int64_t segment, const Error& error) {
  Out& out = steps_[step].out[target];
  if (stopped_ || out.acked[segment]) return;
  const int peer = compiled(step).out[target].peer;
  if (error && !group_.gone(peer)) return group_.send_failed(peer, error);
  out.acked[segment] = true;
  while (out.acked_prefix < compiled(step).segments && out.acked[out.acked_prefix])
    ++out.acked_prefix;
  after_progress(step);
}

void OpRun::on_grant(const MessageHeader& header) {
  auto it = op_->schedule->outbound.find({header.source, header.edge});
  if (it == op_->schedule->outbound.end())
    return protocol_error(header, "a grant for an edge that this op does not have");
  Out& out = steps_[it->second.step].out[it->second.slot];
  out.granted = std::max<int64_t>(out.granted, header.segment);
  out.requested = false;
  group_.queue(*this, it->second.step);
}

}  // namespace ringdist
