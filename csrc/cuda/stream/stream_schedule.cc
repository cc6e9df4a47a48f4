#include "cuda/stream/stream_schedule.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace ringdist::gpu {
namespace {

constexpr int64_t kWhole = std::numeric_limits<int64_t>::max() / 2;  // one segment for a step

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

  // Steps without elements do nothing, and have no messages.
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
    const Error ended = link_.end();  // what was begun must end
    return error ? error : ended;
  }

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
  std::vector<std::vector<DeviceBytes>> arrived_;  // by step and slot
  std::vector<DeviceBytes> leaving_;               // by step
};

}  // namespace

StreamSchedule make_stream_schedule(const Algorithm& algorithm, Collective kind, Shape shape) {
  std::vector<std::shared_ptr<const CompiledSchedule>> ranks;
  const int rank = shape.rank;
  Shape others = shape;
  if (kind == Collective::kAlltoall) {
    // Of parts that this rank does not know: the steps are the same whatever their sizes.
    others.input_parts = others.output_parts = {};
    others.count = 1;
  }
  for (others.rank = 0; others.rank < shape.size; ++others.rank)
    ranks.push_back(compile(algorithm.build(kind, others.rank == rank ? shape : others), kWhole));
  const RoundAssignment walk(ranks, shape.size, RoundAssignment::SendMode::kMet);
  return {ranks[static_cast<size_t>(rank)], exchanges_of(walk, rank)};
}

Error enqueue(const StreamSchedule& schedule, StreamOp& op, StreamArithmetic& arithmetic,
              DeviceLink& link) {
  return Enqueuing(schedule, op, arithmetic, link).run();
}

}  // namespace ringdist::gpu
