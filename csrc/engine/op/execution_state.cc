#include "engine/op/execution_state.h"

#include <algorithm>
#include <utility>

namespace ringdist {

StepProgress::StepProgress(const CompiledSchedule& schedule, GrantBudget& budget,
                           std::pmr::memory_resource& memory)
    : schedule_(schedule),
      inflows_(&memory),
      outflows_(&memory),
      steps_(schedule.steps.size(), &memory),
      unfinished_(static_cast<int>(schedule.steps.size())) {
  // The spans below point into both vectors, so they must not reallocate.
  inflows_.reserve(schedule.inbound.size());
  outflows_.reserve(schedule.outbound.size());
  for (int step = 0; step < count(); ++step) {
    const CompiledStep& what = compiled(step);
    StepState& one = (*this)[step];
    for (const EdgeId& edge : what.in) inflows_.emplace_back(edge, what.segments, budget);
    for (const EdgeId& edge : what.out) outflows_.emplace_back(edge, what.segments);
    one.in = std::span(inflows_).last(what.in.size());
    one.out = std::span(outflows_).last(what.out.size());
  }
}

// A step that writes has come as far as its written segments; a pure send counts its completed
// sends. With `finished`, both limits apply.
int64_t StepProgress::progress_of(int step, bool finished) const {
  const StepState& one = (*this)[step];
  int64_t segments = writes(step) ? one.written : compiled(step).segments;
  if (finished || !writes(step))
    for (const SendEdge& out : one.out) segments = std::min(segments, out.completed());
  return std::min(compiled(step).step.range.count, segments * schedule_.segment_count);
}

// The segment ends at element `end` of its range, which is element `end + shift` of the range that
// it depends on. All elements before that must be available, as far as that range reaches.
bool StepProgress::ready(int step, int64_t segment) const {
  const CompiledStep& what = compiled(step);
  if (!std::ranges::all_of(what.step.follows, [this](int before) { return complete(before); }))
    return false;
  const int64_t end = schedule_.segment_end(what, segment);
  return std::ranges::all_of(what.after, [&](const Dependency& dependency) {
    const int64_t need = std::clamp<int64_t>(dependency.shift + end, 0, dependency.limit);
    return progress_of(dependency.on, dependency.finished) >= need;
  });
}

bool StepProgress::complete(int step) const {
  const StepState& one = (*this)[step];
  if (writes(step) && one.written < compiled(step).segments) return false;
  return std::ranges::all_of(
      one.out, [](const SendEdge& out) { return out.state() == SendEdge::State::kDone; });
}

bool StepProgress::mark_done(int step) {
  StepState& one = (*this)[step];
  if (one.done || !complete(step)) return false;
  one.done = true;
  --unfinished_;
  return true;
}

bool StepProgress::waits_for(int peer) const {
  return std::ranges::any_of(steps_, [peer](const StepState& one) {
    return std::ranges::any_of(
        one.in, [peer](const RecvEdge& in) { return in.peer() == peer && in.lacks_any(); });
  });
}

bool StepProgress::has_unsent_to(int peer) const {
  return std::ranges::any_of(steps_, [peer](const StepState& one) {
    return std::ranges::any_of(
        one.out, [peer](const SendEdge& out) { return out.peer() == peer && !out.all_sent(); });
  });
}

std::string StepProgress::dump() const {
  std::string out;
  for (int step = 0; step < count(); ++step) {
    const StepState& one = (*this)[step];
    if (one.done) continue;
    const std::string where = "\n    step " + std::to_string(step);
    const std::string of = " of " + std::to_string(compiled(step).segments);
    for (const RecvEdge& in : one.in)
      out += where + ": from rank " + std::to_string(in.peer()) + ", segment " +
             std::to_string(one.written) + of + ", kept " + std::to_string(in.kept_count()) +
             ", granted " + std::to_string(in.granted_until());
    for (const SendEdge& to : one.out)
      out += where + ": to rank " + std::to_string(to.peer()) + ", sent " +
             std::to_string(to.next()) + of + ", completed " + std::to_string(to.completed()) +
             ", credit to segment " + std::to_string(to.granted_until()) +
             (to.state() == SendEdge::State::kAsking ? ", asked for more" : "");
  }
  return out;
}

void StepProgress::stop() {
  for (StepState& one : steps_) {
    one.held.clear();
    for (RecvEdge& in : one.in) in.stop();
  }
}

namespace {

Pooled<Arithmetic> make_arithmetic(const Op& op, ExecutionDelegate& delegate, StoreMode stores) {
  const ArithmeticMemory memory{delegate.progress.memory, delegate.progress.scratch};
  return op.request.codec_map
             ? compressed_arithmetic(op, delegate.flow.rank, delegate.flow.size, memory)
             : plain_arithmetic(op, delegate.flow.size, stores, memory);
}

int64_t output_bytes(const Op& op) {
  return op.request.output.count() * static_cast<int64_t>(op.request.output.element_size());
}

}  // namespace

ExecutionState::ExecutionState(OpExecution& run, ExecutionDelegate& delegate,
                               std::shared_ptr<Op> op, uint64_t number)
    : run(run),
      delegate(delegate),
      op(std::move(op)),
      number(number),
      trial(delegate.progress.stores.begin(this->op->request.kind, output_bytes(*this->op),
                                           delegate.progress.now)),
      arithmetic(make_arithmetic(*this->op, delegate, trial.stores)),
      steps(*this->op->schedule, delegate.progress.grants, delegate.progress.memory),
      window(*this->op, *arithmetic, delegate.flow),
      last_progress(delegate.progress.now) {
  this->op->longest_wait = last_progress - this->op->started;
}

void ExecutionState::end() {
  ended_ = true;
  window.end(delegate.progress.now);
  steps.stop();
  if (queued_ > 0) delegate.progress.work.forget(run);
  if (open_sends_ > 0)
    delegate.progress.completions.orphan(run, [this](const SentSegment& sent, SendId send_id) {
      delegate.sender.revoke_payload(steps[sent.step].out[sent.target].peer(), send_id);
    });
}

void ExecutionState::queue(int step) {
  if (ended_ || std::exchange(steps[step].queued, true)) return;
  ++queued_;
  delegate.progress.work.push(run, step);
}

void ExecutionState::taken(int step) {
  --queued_;
  steps[step].queued = false;
}

void ExecutionState::after_progress(int step) {
  if (const TimePoint now = delegate.progress.now; now != last_progress) {
    op->longest_wait = std::max(op->longest_wait, now - last_progress);
    last_progress = now;
  }
  for (const int waiting : compiled(step).before) queue(waiting);
  if (!steps.mark_done(step) || !steps.all_done()) return;
  delegate.progress.stores.ended(trial, delegate.progress.now);
  delegate.finished(run);
}

SendId ExecutionState::issue(int step, int target, int64_t segment,
                             std::shared_ptr<const void> memory) {
  ++open_sends_;
  return delegate.progress.completions.issue({&run, step, target, segment}, std::move(memory));
}

}  // namespace ringdist
