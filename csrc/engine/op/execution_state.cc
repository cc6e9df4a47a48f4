#include "engine/op/execution_state.h"

#include <utility>

namespace ringdist {
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
      last_progress(delegate.progress.now) {}

void ExecutionState::end() {
  ended_ = true;
  window.end(delegate.progress.now);
  steps.stop();
  if (queued_ > 0) delegate.progress.work.forget(run);
  if (tickets_ > 0)
    delegate.progress.completions.orphan(run, [this](const SentSegment& sent, SendId send_id) {
      delegate.revoke_payload(steps[sent.step].out[sent.target].peer(), send_id);
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
  last_progress = delegate.progress.now;
  for (const int waiting : compiled(step).before) queue(waiting);
  if (!steps.mark_done(step) || !steps.all_done()) return;
  delegate.progress.stores.ended(trial, delegate.progress.now);
  delegate.finished(run);
}

SendId ExecutionState::issue(int step, int target, int64_t segment,
                             std::shared_ptr<const void> memory) {
  ++tickets_;
  return delegate.progress.completions.issue({&run, step, target, segment}, std::move(memory));
}

}  // namespace ringdist
