// The receiving half of OpRun.
#include <algorithm>

#include "engine/group.h"
#include "engine/op/run.h"
#include "kernel/reduce.h"

namespace ringdist {

void OpRun::on_data(const MessageHeader& header, ConstBytes payload) {
  auto it = op_->schedule->inbound.find({header.source, header.edge});
  if (it == op_->schedule->inbound.end())
    return protocol_error(header, "an edge that this op does not have");
  const auto [step, slot] = it->second;
  if (!counts_agree(step, header)) return;
  StepRun& run = steps_[step];
  In& in = run.in[slot];
  const int64_t segment = header.segment;
  if (segment >= compiled(step).segments || segment < run.written || in.kept.contains(segment))
    return protocol_error(header, "which is out of range or came before");
  const size_t expected = segment_bytes(step, segment);
  if (coder_ ? payload.size() > expected : payload.size() != expected)
    return protocol_error(header, std::to_string(payload.size()) + " bytes instead of " +
                                      (coder_ ? "at most " : "") + std::to_string(expected));
  if (limits_senders()) note_arrival(in, header, payload.size());
  const auto others_arrived = [&] {
    for (size_t other = 0; other < run.in.size(); ++other)
      if (static_cast<int>(other) != slot && !run.in[other].kept.contains(segment)) return false;
    return true;
  };
  if (segment == run.written && ready(step, segment) && others_arrived()) {
    consume(step, slot, payload, header.early != 0);
  } else {
    in.kept.emplace(segment, Kept{pooled_copy(scratch_pool_, payload), header.early != 0});
    Statistics::add(group_.statistics().messages_kept, 1);
    grant(step, slot);
  }
  if (!stopped_) group_.queue(*this, step);
}

void OpRun::note_arrival(const In& in, const MessageHeader& header, size_t bytes) {
  const TimePoint now = group_.now();
  group_.inbound().arrived(bytes, now);
  if (header.early == 0 && header.segment == in.first_allowed && in.granted > 0)
    group_.inbound().answered(now - in.granted_at);
}

bool OpRun::waits_for(int peer) const {
  for (size_t step = 0; step < steps_.size(); ++step) {
    const CompiledStep& compiled_step = compiled(static_cast<int>(step));
    for (size_t slot = 0; slot < compiled_step.in.size(); ++slot) {
      const auto kept = static_cast<int64_t>(steps_[step].in[slot].kept.size());
      if (compiled_step.in[slot].peer == peer &&
          steps_[step].written + kept < compiled_step.segments)
        return true;
    }
  }
  return false;
}

bool OpRun::arrived(int step, int64_t segment) const {
  const StepRun& run = steps_[step];
  return std::all_of(run.in.begin(), run.in.end(),
                     [&](const In& in) { return in.kept.contains(segment); });
}

bool OpRun::advance_receive(int step) {
  const int64_t segment = steps_[step].written;
  if (segment == compiled(step).segments || !arrived(step, segment) || !ready(step, segment))
    return false;
  consume(step, /*direct=*/-1, {}, false);
  return true;
}

void OpRun::consume(int step, int direct, ConstBytes direct_bytes, bool direct_early) {
  StepRun& run = steps_[step];
  const int64_t segment = run.written;
  std::vector<ConstBytes> bytes;
  std::vector<bool> early;
  for (size_t slot = 0; slot < run.in.size(); ++slot) {
    const bool is_direct = static_cast<int>(slot) == direct;
    bytes.push_back(is_direct ? direct_bytes : run.in[slot].kept.at(segment).data.bytes());
    early.push_back(is_direct ? direct_early : run.in[slot].kept.at(segment).early);
  }
  const Step& description = compiled(step).step;
  if (description.range.buffer == BufferId::kOutput && description.range.count > 0) wrote_ = true;
  const bool reduces = description.kind == StepKind::kReduce;
  const Error error = !reduces ? place(step, segment, bytes[0])
                      : coder_ ? reduce_encoded(step, segment, bytes)
                               : reduce_segment(step, segment, bytes);
  if (error) return group_.fail(error.prefixed(op_->describe() + ": "), /*tell_others=*/true);
  ++run.written;
  for (size_t slot = 0; slot < run.in.size(); ++slot) {
    const size_t size = bytes[slot].size();
    run.in[slot].kept.erase(segment);
    settle(step, slot, early[slot], size);
  }
  after_progress(step);
}

Error OpRun::place(int step, int64_t segment, ConstBytes bytes) {
  const Step& description = compiled(step).step;
  if (!coder_) {
    const Range part = slice(step, description.range, segment);
    buffer(part.buffer).copy_from(part.offset, part.count, bytes.data());
    return {};
  }
  if (Error error = coder_->place(step, segment, bytes)) return error;
  if (description.kind == StepKind::kRelay)
    steps_[step].encoded[segment] =
        std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  return {};
}

Error OpRun::reduce_encoded(int step, int64_t segment, const std::vector<ConstBytes>& arrived) {
  EncodedBytes encoded;
  if (Error error = coder_->reduce(step, segment, arrived, encoded)) return error;
  hand_on(step, segment, std::move(encoded));
  return {};
}

// One pass over memory: local sources where they lie, remote ones where the transport put them.
Error OpRun::reduce_segment(int step, int64_t segment, const std::vector<ConstBytes>& arrived) {
  const CompiledStep& compiled_step = compiled(step);
  const Step& description = compiled_step.step;
  const Range part = slice(step, description.range, segment);
  std::vector<std::vector<std::byte>> memory;  // what had to be gathered from several spans
  memory.reserve(description.sources.size() + 1);
  std::vector<const std::byte*> sources(description.sources.size());
  for (size_t slot = 0; slot < arrived.size(); ++slot)
    sources[compiled_step.source_of_in[slot]] = arrived[slot].data();
  for (size_t s = 0; s < sources.size(); ++s) {
    if (description.sources[s].peer >= 0) continue;
    const Range local = slice(step, description.sources[s].range, segment);
    sources[s] = buffer(local.buffer).contiguous(local.offset, local.count).data();
    if (sources[s] || local.count == 0) continue;
    memory.emplace_back(segment_bytes(step, segment));
    buffer(local.buffer).copy_to(local.offset, local.count, memory.back().data());
    sources[s] = memory.back().data();
  }
  if (part.count == 0) return {};
  const int64_t divisor = description.finish ? group_.size() : 1;
  const auto count = static_cast<size_t>(part.count);
  const Bytes to = buffer(part.buffer).contiguous(part.offset, part.count);
  if (to.data()) {
    reduce(op_->request.dtype, op_->request.reduce_op, to.data(), sources, count, divisor);
    return {};
  }
  memory.emplace_back(segment_bytes(step, segment));
  reduce(op_->request.dtype, op_->request.reduce_op, memory.back().data(), sources, count, divisor);
  buffer(part.buffer).copy_from(part.offset, part.count, memory.back().data());
  return {};
}

// A message's memory is free again.
void OpRun::settle(int step, size_t slot, bool early, size_t bytes) {
  const int peer = compiled(step).in[slot].peer;
  if (early) group_.consumed_early(peer, bytes);
  In& in = steps_[step].in[slot];
  const int64_t left = std::max<int64_t>(0, in.granted - steps_[step].written);
  set_promise(in, left * promise_bytes(step));
  grant(step, slot);
}

void OpRun::set_promise(In& in, int64_t bytes) {
  group_.promises().change(bytes - in.promised);
  in.promised = bytes;
}

// Senders that start at once (with their first edge to us) and have more for us than their early
// credit, or than a slow link lets them send unasked, are told before they ask: where ranks share
// cores, an answer may take a time slice.
void OpRun::grant_unasked() {
  if (op_->request.endpoint) return;
  for (size_t step = 0; step < steps_.size(); ++step) {
    const int at = static_cast<int>(step);
    if (compiled(at).in.empty() || !compiled(at).after.empty()) continue;
    const int64_t segments = compiled(at).segments;
    if (segments <= most_unasked(at) && segments * promise_bytes(at) <= group_.early_window())
      continue;
    for (size_t slot = 0; slot < steps_[step].in.size(); ++slot)
      if (compiled(at).in[slot].edge == 0) grant(at, slot, MessageType::kFirstGrant);
  }
}

// Grants as much as the window and the memory allow, in few messages. An edge asks by its first
// data or by a request; single-segment edges that came on early credit never need a grant.
void OpRun::grant(int step, size_t slot, MessageType type) {
  const int64_t segments = compiled(step).segments;
  StepRun& run = steps_[step];
  In& in = run.in[slot];
  const int64_t consumed = run.written;
  const int64_t here = consumed + static_cast<int64_t>(in.kept.size());
  if (stopped_ || here >= segments || in.granted >= segments) return;
  const int64_t most = window(step);
  if (!in.wanted && in.granted - consumed > most / 2) return;
  const auto bytes = promise_bytes(step);
  int64_t target = std::min(segments, consumed + most);
  const auto affordable = [&] {
    return group_.promises().fits((target - consumed) * bytes - in.promised);
  };
  if (!affordable()) {
    target = here + 1;  // the guaranteed slot
    if (!affordable() && !group_.is_oldest(*this)) {
      in.wanted = type == MessageType::kGrant;
      return;
    }
  }
  if (target <= std::max(in.granted, here)) return;
  if (in.granted == 0 || here > in.first_allowed) {
    in.first_allowed = std::max(in.granted, here);
    in.granted_at = group_.now();
  }
  in.granted = target;
  in.wanted = false;
  set_promise(in, (target - consumed) * bytes);
  MessageHeader header{};
  header.type = type;
  header.fingerprint = op_->fingerprint;
  header.destination = compiled(step).in[slot].peer;
  header.op = number_;
  header.edge = compiled(step).in[slot].edge;
  header.segment = static_cast<uint32_t>(target);
  group_.send_control(header);
}

void OpRun::on_request(const MessageHeader& header) {
  auto it = op_->schedule->inbound.find({header.source, header.edge});
  if (it == op_->schedule->inbound.end())
    return protocol_error(header, "a request for an edge that this op does not have");
  if (!counts_agree(it->second.step, header)) return;
  steps_[it->second.step].in[it->second.slot].wanted = true;
  grant(it->second.step, it->second.slot);
}

void OpRun::grant_waiting() {
  for (size_t step = 0; step < steps_.size(); ++step)
    for (size_t slot = 0; slot < steps_[step].in.size(); ++slot)
      if (steps_[step].in[slot].wanted) grant(static_cast<int>(step), slot);
}

}  // namespace ringdist
