#include "engine/op/run_state.h"

#include <utility>

namespace ringdist {
namespace {

Pooled<Arithmetic> make_arithmetic(const Op& op, ExecutionDelegate& port, StoreMode stores) {
  const ArithmeticMemory memory{port.lane.memory, port.lane.scratch};
  return op.request.blocks ? coded_arithmetic(op, port.flow.rank, port.flow.size, memory)
                           : plain_arithmetic(op, port.flow.size, stores, memory);
}

int64_t output_bytes(const Op& op) {
  return op.request.output.count() * static_cast<int64_t>(op.request.output.element_size());
}

}  // namespace

ExecutionState::ExecutionState(OpExecution& run, ExecutionDelegate& port, std::shared_ptr<Op> op,
                               uint64_t number)
    : run(run),
      port(port),
      op(std::move(op)),
      number(number),
      trial(port.lane.stores.begin(this->op->request.kind, output_bytes(*this->op), port.lane.now)),
      arithmetic(make_arithmetic(*this->op, port, trial.stores)),
      steps(*this->op->schedule, port.lane.promises, port.lane.memory),
      window(*this->op, *arithmetic, port.flow),
      last_progress(port.lane.now) {}

void ExecutionState::end() {
  ended_ = true;
  window.end(port.lane.now);
  steps.stop();
  if (queued_ > 0) port.lane.work.forget(run);
  if (tickets_ > 0)
    port.lane.tickets.disown(run, [this](const SentSegment& sent, SendId ticket) {
      port.withdraw(steps[sent.step].out[sent.target].peer(), ticket);
    });
}

void ExecutionState::queue(int step) {
  if (ended_ || std::exchange(steps[step].queued, true)) return;
  ++queued_;
  port.lane.work.push(run, step);
}

void ExecutionState::taken(int step) {
  --queued_;
  steps[step].queued = false;
}

void ExecutionState::after_progress(int step) {
  last_progress = port.lane.now;
  for (const int waiting : compiled(step).before) queue(waiting);
  if (!steps.settle(step) || !steps.all_done()) return;
  port.lane.stores.ended(trial, port.lane.now);
  port.finished(run);
}

SendId ExecutionState::issue(int step, int target, int64_t segment,
                             std::shared_ptr<const void> memory) {
  ++tickets_;
  return port.lane.tickets.issue({&run, step, target, segment}, std::move(memory));
}

}  // namespace ringdist
