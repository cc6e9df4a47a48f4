#include "engine/op/run.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/group.h"

namespace ringdist {

OpRun::OpRun(Group& group, std::shared_ptr<Op> op, uint64_t number)
    : group_(group),
      op_(std::move(op)),
      number_(number),
      scratch_(dtype_size(op_->request.dtype)),
      scratch_pool_(group.scratch_pool()),
      scratch_memory_(scratch_pool_,
                      static_cast<size_t>(op_->schedule->scratch_count) * scratch_.element_size()),
      last_progress_(group.now()) {
  const CompiledSchedule& schedule = *op_->schedule;
  if (schedule.scratch_count > 0)
    scratch_.append(scratch_memory_.bytes().data(), schedule.scratch_count);
  if (op_->request.kind == Collective::kBarrier)  // it sends its scratch as it is
    std::ranges::fill(scratch_memory_.bytes(), std::byte{0});
  if (op_->request.blocks) {
    coder_ = std::make_unique<Coder>(*op_, group.rank(), group.size(), scratch_pool_);
    int last = -1;  // they are in order of the sender
    for (const auto& [edge, end] : schedule.inbound)
      if (std::exchange(last, edge.first) != edge.first) ++senders_;
  }
  steps_.resize(schedule.steps.size());
  for (size_t i = 0; i < steps_.size(); ++i) {
    steps_[i].in.resize(schedule.steps[i].in.size());
    steps_[i].out.resize(schedule.steps[i].out.size());
    for (Out& out : steps_[i].out) out.acked.resize(schedule.steps[i].segments);
  }
  unfinished_steps_ = static_cast<int>(steps_.size());
}

void OpRun::start() {
  if (limits_senders()) group_.inbound().begin();
  if (unfinished_steps_ == 0) return group_.finished(*this);
  for (size_t i = 0; i < steps_.size(); ++i) group_.queue(*this, static_cast<int>(i));
  grant_unasked();
}

bool OpRun::advance(int step) {
  if (stopped_ || steps_[step].done) return false;
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

void OpRun::stop() {
  if (stopped_) return;
  if (limits_senders()) group_.inbound().end(group_.now());
  stopped_ = true;
  for (StepRun& run : steps_) {
    run.encoded.clear();
    for (In& in : run.in) {
      in.kept.clear();
      set_promise(in, 0);
    }
  }
}

int OpRun::peer() const {
  const Step& only = compiled(0).step;
  return only.kind == StepKind::kSend ? only.to[0] : only.from;
}

const Buffer& OpRun::buffer(BufferId id) const {
  switch (id) {
    case BufferId::kInput:
      return op_->request.input;
    case BufferId::kOutput:
      return op_->request.output;
    case BufferId::kScratch:
      break;
  }
  return scratch_;
}

Range OpRun::slice(int step, const Range& range, int64_t segment) const {
  return op_->schedule->slice(step, range, segment);
}

size_t OpRun::segment_bytes(int step, int64_t segment) const {
  if (coder_) return coder_->max_bytes(step, segment);
  return static_cast<size_t>(slice(step, compiled(step).step.range, segment).count) *
         scratch_.element_size();
}

int64_t OpRun::promise_bytes(int step) const {
  return static_cast<int64_t>(coder_ ? coder_->most_bytes(step) : segment_bytes(step, 0));
}

int64_t OpRun::window(int step) const {
  if (!limits_senders()) return kWindow;
  const int64_t share = group_.inbound().share(senders_);
  if (share == InboundWindow::kUnlimited) return kWindow;
  const auto segment = static_cast<int64_t>(coder_->mean_bytes(step));
  return std::clamp<int64_t>(share / std::max<int64_t>(1, segment), 2, kWindow);
}

// The link into a receiver is taken to be as fast as that to us.
int64_t OpRun::most_unasked(int step) const {
  const int64_t most = window(step);
  return most == kWindow ? InboundWindow::kUnlimited : most;
}

// Elements of a step's range that are there (or, finished, that nothing of ours uses any more).
int64_t OpRun::progress_of(int step, bool finished) const {
  const StepRun& run = steps_[step];
  const bool writes = compiled(step).step.kind != StepKind::kSend;
  int64_t segments = writes ? run.written : compiled(step).segments;
  if (finished || !writes)
    for (const Out& out : run.out) segments = std::min(segments, out.acked_prefix);
  return std::min(compiled(step).step.range.count, segments * op_->schedule->segment_count);
}

bool OpRun::ready(int step, int64_t segment) const {
  const int64_t end = op_->schedule->segment_end(compiled(step), segment);
  for (const Dependency& dependency : compiled(step).after) {
    const int64_t need = std::clamp<int64_t>(dependency.shift + end, 0, dependency.limit);
    if (progress_of(dependency.on, dependency.finished) < need) return false;
  }
  return true;
}

// A segment of the step was written, or its send completed.
void OpRun::after_progress(int step) {
  last_progress_ = group_.now();
  StepRun& run = steps_[step];
  for (int waiting : compiled(step).before) group_.queue(*this, waiting);
  const int64_t segments = compiled(step).segments;
  const bool writes = compiled(step).step.kind != StepKind::kSend;
  if (run.done || (writes && run.written < segments)) return;
  for (const Out& out : run.out)
    if (out.acked_prefix < segments) return;
  run.done = true;
  if (--unfinished_steps_ == 0) group_.finished(*this);
}

bool OpRun::advance_copy(int step) {
  StepRun& run = steps_[step];
  if (!ready(step, run.written)) return false;
  const Step& description = compiled(step).step;
  if (coder_) {
    wrote_ = true;
    EncodedBytes encoded;
    if (Error error = coder_->copy(step, run.written, encoded)) {
      group_.fail(error.prefixed(op_->describe() + ": "), /*tell_others=*/true);
      return false;
    }
    hand_on(step, run.written, std::move(encoded));
  } else {
    copy_segment(slice(step, description.sources[0].range, run.written),
                 slice(step, description.range, run.written));
  }
  ++run.written;
  after_progress(step);
  return true;
}

void OpRun::copy_segment(const Range& from, const Range& to) {
  int64_t at = 0;
  if (to.buffer == BufferId::kOutput) wrote_ = true;
  buffer(to.buffer).for_each(to.offset, to.count, [&](Bytes piece) {
    const auto count = static_cast<int64_t>(piece.size() / scratch_.element_size());
    const Bytes source = buffer(from.buffer).contiguous(from.offset + at, count);
    // In place (allgather): the part is where it belongs already.
    if (source.data() == nullptr)
      buffer(from.buffer).copy_to(from.offset + at, count, piece.data());
    else if (source.data() != piece.data())
      std::memcpy(piece.data(), source.data(), piece.size());
    at += count;
  });
}

void OpRun::hand_on(int step, int64_t segment, EncodedBytes encoded) {
  const int consumer = compiled(step).consumer;
  if (consumer < 0) return;
  steps_[consumer].encoded[segment] = std::move(encoded);
  group_.queue(*this, consumer);
}

// Ranks of an op with parts of their own sizes can compare them edge by edge only.
bool OpRun::counts_agree(int step, const MessageHeader& header) {
  const int64_t expected = compiled(step).step.range.count;
  if (!carries_fingerprint(header) || !header.fingerprint.of_edge ||
      header.fingerprint.count == expected)
    return true;
  group_.fail(
      Error(ErrorKind::kMismatch, op_->describe() + ": rank " + std::to_string(header.source) +
                                      " sends " + std::to_string(header.fingerprint.count) +
                                      " elements to rank " + std::to_string(group_.rank()) +
                                      ", which expects " + std::to_string(expected))
          .blame(header.source),
      /*tell_others=*/true);
  return false;
}

void OpRun::protocol_error(const MessageHeader& header, const std::string& what) {
  group_.fail(
      Error(ErrorKind::kProtocol, op_->describe() + ": rank " + std::to_string(header.source) +
                                      " sent segment " + std::to_string(header.segment) +
                                      " of edge " + std::to_string(header.edge) + ", " + what)
          .blame(header.source),
      /*tell_others=*/true);
}

std::string OpRun::dump() const {
  std::string out = op_->describe();
  for (size_t i = 0; i < steps_.size(); ++i) {
    const StepRun& run = steps_[i];
    const CompiledStep& step = compiled(static_cast<int>(i));
    if (run.done) continue;
    for (size_t s = 0; s < run.in.size(); ++s)
      out += "\n    step " + std::to_string(i) + ": from rank " + std::to_string(step.in[s].peer) +
             ", segment " + std::to_string(run.written) + " of " + std::to_string(step.segments) +
             ", kept " + std::to_string(run.in[s].kept.size()) + ", granted " +
             std::to_string(run.in[s].granted);
    for (size_t t = 0; t < run.out.size(); ++t)
      out += "\n    step " + std::to_string(i) + ": to rank " + std::to_string(step.out[t].peer) +
             ", sent " + std::to_string(run.out[t].issued) + " of " +
             std::to_string(step.segments) + ", completed " +
             std::to_string(run.out[t].acked_prefix) + ", credit to segment " +
             std::to_string(run.out[t].granted) + (run.out[t].requested ? ", asked for more" : "");
  }
  return out;
}

}  // namespace ringdist
