#include "cuda/stream/stream_schedule.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "cuda/stream/path_rules.h"
#include "plan/compressed_plan.h"

namespace ringdist::gpu {
namespace {

// Returns the round from which on the memory of the step is free for its messages. All steps that
// it depends on are done by then. A message of such a step leaves in the step's round, behind its
// work, so its memory is free one round later.
int free_in(const RoundAssignment& assignment, int rank, int step) {
  int round = 0;
  for (const Dependency& dependency : assignment.steps(rank)[static_cast<size_t>(step)].after) {
    const CompiledStep& on = assignment.steps(rank)[static_cast<size_t>(dependency.on)];
    const bool leaves = dependency.finished && !on.out.empty();
    round = std::max(round, assignment.of(rank, dependency.on) + (leaves ? 1 : 0));
  }
  return round;
}

constexpr int64_t kWhole = std::numeric_limits<int64_t>::max() / 2;  // each step has one segment

// Enqueues one op, exchange by exchange.
class Enqueuing {
 public:
  Enqueuing(const StreamSchedule& schedule, StreamOp& op, StreamArithmetic& arithmetic,
            DeviceLink& link)
      : schedule_(schedule), op_(op), arithmetic_(arithmetic), link_(link) {
    const auto& steps = schedule.steps->steps;
    arrived_.resize(steps.size());
    for (size_t step = 0; step < steps.size(); ++step) arrived_[step].resize(steps[step].in.size());
    leaving_.resize(steps.size());
  }

  Error run() {
    if (Error error = op_.begin()) return error;
    if (Error error = arithmetic_.begin()) return error;
    for (const Exchange& exchange : schedule_.exchanges) {
      for (const int step : exchange.steps)
        if (Error error = do_step(step)) return error;
      if (Error error = move(exchange)) return error;
    }
    return {};
  }

 private:
  static size_t index(int i) { return static_cast<size_t>(i); }

  // Steps without elements do nothing and have no messages.
  bool empty(int step) const { return op_.step(step).step.range.count == 0; }

  Error do_step(int step) {
    if (empty(step)) return {};
    const auto leaving = arithmetic_.run(step, arrived_[index(step)]);
    if (!leaving.ok()) return leaving.error();
    leaving_[index(step)] = leaving.value();
    return {};
  }

  Error move(const Exchange& exchange) {
    const auto moves = [this](const ExchangeMessage& message) { return !empty(message.step); };
    if (std::ranges::none_of(exchange.sends, moves) &&
        std::ranges::none_of(exchange.receives, moves))
      return {};
    if (Error error = make_room(exchange)) return error;
    if (Error error = link_.begin()) return error;
    const Error error = name_messages(exchange);
    const Error ended = link_.end();  // the exchange must be closed, even after an error
    return error ? error : ended;
  }

  // Sets the memory for messages that will be received.
  Error make_room(const Exchange& exchange) {
    for (const ExchangeMessage& message : exchange.receives) {
      if (empty(message.step)) continue;
      DeviceBytes& to = arrived_[index(message.step)][index(message.slot)];
      to = arithmetic_.incoming(message.step, message.slot);
      to.data = message.in_place ? arithmetic_.landing(message.step) : nullptr;
      if (to.data != nullptr) continue;
      const auto memory = op_.scratch.take(to.size);
      if (!memory.ok()) return memory.error();
      to.data = memory.value();
    }
    return {};
  }

  // Passes all sends and receives of the exchange to the link.
  Error name_messages(const Exchange& exchange) {
    for (const ExchangeMessage& message : exchange.sends) {
      if (empty(message.step)) continue;
      const DeviceBytes& from = leaving_[index(message.step)];
      const int peer = op_.step(message.step).out[index(message.slot)].peer;
      if (Error error = link_.send(peer, from, op_.stream)) return error;
    }
    for (const ExchangeMessage& message : exchange.receives) {
      if (empty(message.step)) continue;
      const DeviceBytes& to = arrived_[index(message.step)][index(message.slot)];
      const int peer = op_.step(message.step).in[index(message.slot)].peer;
      if (Error error = link_.receive(peer, to, op_.stream)) return error;
    }
    return {};
  }

  const StreamSchedule& schedule_;
  StreamOp& op_;
  StreamArithmetic& arithmetic_;
  DeviceLink& link_;
  std::vector<std::vector<DeviceBytes>> arrived_;  // received messages, by step and slot
  std::vector<DeviceBytes> leaving_;               // messages to send, by step
};

// Limit of cached schedules.
constexpr size_t kMostKept = 64;

}  // namespace

std::vector<Exchange> exchanges_of(const RoundAssignment& assignment, int rank) {
  std::vector<Exchange> out;
  const auto exchange = [&](int round) -> Exchange& {
    const auto at = static_cast<size_t>(round);
    if (out.size() <= at) out.resize(at + 1);
    return out[at];
  };
  const auto& steps = assignment.steps(rank);
  for (int step = 0; step < static_cast<int>(steps.size()); ++step) {
    const CompiledStep& one = steps[static_cast<size_t>(step)];
    const int round = assignment.of(rank, step);
    exchange(round).steps.push_back(step);
    for (size_t slot = 0; slot < one.out.size(); ++slot)
      exchange(round).sends.push_back({step, static_cast<int>(slot)});
    // Each source of a reduction needs memory of its own until all have arrived.
    const bool reduces = one.step.kind == StepKind::kReduce;
    const int free = free_in(assignment, rank, step);
    for (size_t slot = 0; slot < one.in.size(); ++slot) {
      const int comes = assignment.of_message(rank, one.in[slot]);
      exchange(comes).receives.push_back({step, static_cast<int>(slot), !reduces && free <= comes});
    }
  }
  return out;
}

StreamSchedule make_stream_schedule(const Algorithm& algorithm, Collective kind,
                                    const Shape& shape) {
  std::vector<std::shared_ptr<const CompiledSchedule>> ranks;
  const int rank = shape.rank;
  Shape others = shape;
  if (kind == Collective::kAlltoall) {
    // This rank does not have the sizes of other ranks' parts. The steps are the same for any
    // sizes.
    others.input_parts = others.output_parts = {};
    others.count = 1;
  }
  for (others.rank = 0; others.rank < shape.size; ++others.rank)
    ranks.push_back(compile(algorithm.build(kind, others.rank == rank ? shape : others), kWhole));
  const RoundAssignment assignment(ranks, shape.size, RoundAssignment::SendMode::kMet);
  return {ranks[static_cast<size_t>(rank)], exchanges_of(assignment, rank)};
}

Error enqueue(const StreamSchedule& schedule, StreamOp& op, StreamArithmetic& arithmetic,
              DeviceLink& link) {
  return Enqueuing(schedule, op, arithmetic, link).run();
}

Error StreamSchedules::prepare(const OpSpec& request) {
  if (Error error = schedule_refusal(request, size_)) return error;
  return request.codec_map && !malformed() ? make_malformed() : Error();
}

Error StreamSchedules::make_malformed() {
  const Result<void*> made = cuda_.allocate_pinned(sizeof(int));
  if (!made.ok()) return made.error();
  std::shared_ptr<int> word(static_cast<int*>(made.value()),
                            [cuda = &cuda_](int* memory) { cuda->free_pinned(memory); });
  *word = 0;
  std::lock_guard lock(mutex_);
  malformed_ = std::move(word);
  return {};
}

std::shared_ptr<int> StreamSchedules::malformed() const {
  std::lock_guard lock(mutex_);
  return malformed_;
}

Error StreamSchedules::check() const {
  const auto word = malformed();
  if (!word || *static_cast<const volatile int*>(word.get()) == 0) return {};
  return Error(ErrorKind::kProtocol, "ringdist: bytes from another rank that no encoder writes");
}

Shape StreamSchedules::shape_of(const OpSpec& request) const {
  Shape shape{rank_, size_, request.root, request.count, request.input_parts, request.output_parts};
  if (request.codec_map && request.kind == Collective::kAllreduce)
    shape.shards = compressed_shards(*request.codec_map, size_);
  return shape;
}

const StreamSchedule& StreamSchedules::find(const DeviceOp& op) {
  const Algorithm& algorithm = stream_algorithm(op.request.kind, op.plan.algorithm);
  const OpSpec& request = op.request;
  const auto make = [&] {
    return make_stream_schedule(algorithm, request.kind, shape_of(request));
  };
  if (!request.input_parts.empty() || !request.output_parts.empty()) return last_ = make();
  const Key key{&algorithm, request.kind, request.count, request.root, op.plan.compression_hash};
  if (const auto it = schedules_.find(key); it != schedules_.end()) return it->second;
  if (schedules_.size() >= kMostKept) schedules_.clear();
  return schedules_[key] = make();
}

Error StreamSchedules::enqueue(const DeviceOp& op, Stream stream, DeviceLink& link,
                               KeptAlive& held) {
  const StreamSchedule& schedule = find(op);
  StreamOp on_stream(op, *schedule.steps, rank_, size_, cuda_, stream);
  if (!op.request.codec_map)
    return gpu::enqueue(schedule, on_stream, *plain_stream_arithmetic(on_stream), link);
  const auto word = malformed();
  held.push_back(word);  // kernels write there
  return gpu::enqueue(schedule, on_stream, *compressed_stream_arithmetic(on_stream, word.get()),
                      link);
}

}  // namespace ringdist::gpu
