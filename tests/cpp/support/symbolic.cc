#include "support/symbolic.h"

#include <algorithm>

namespace ringdist::symbolic {

Checker::Checker(const Case& what, const std::vector<Schedule>& schedules) : what_(what) {
  add_leaves();
  channels_.resize(static_cast<size_t>(what.size) * what.size);
  for (int rank = 0; rank < what.size; ++rank) {
    scratch_counts_.push_back(schedules[rank].scratch_count);
    add_actions(rank, schedules[rank]);
  }
  for (int a = 0; a < static_cast<int>(actions_.size()); ++a) {
    // Messages of a channel are numbered, on both ends, in the order in which this loop meets
    // them.
    for (Edge& edge : actions_[a].out) {
      edge.index = static_cast<int>(channels_[edge.channel].senders.size());
      channels_[edge.channel].senders.push_back(a);
    }
    for (Edge& edge : actions_[a].in) {
      edge.index = static_cast<int>(channels_[edge.channel].receivers.size());
      channels_[edge.channel].receivers.push_back(a);
    }
  }
}

void Checker::add_actions(int rank, const Schedule& schedule) {
  const size_t first = actions_.size();
  std::vector<int> action_of;
  for (size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    Action action{
        rank, static_cast<int>(s), step.kind, step.range, step.sources, step.finish, {}, {}, {}};
    if (step.from >= 0) action.in.push_back({channel(step.from, rank), 0});
    for (const Source& source : step.sources)
      if (source.peer >= 0) action.in.push_back({channel(source.peer, rank), 0});
    if (step.kind == StepKind::kRelay) {
      action.kind = StepKind::kRecv;
      actions_.push_back(action);
      action.kind = StepKind::kSend;
      action.in.clear();
      // The dependence of the two halves is explicit, because ranges that are empty do not
      // overlap.
      action.after.push_back(static_cast<int>(actions_.size()) - 1);
    }
    for (int peer : step.to) action.out.push_back({channel(rank, peer), 0});
    for (const int before : step.follows)
      action.after.push_back(action_of[static_cast<size_t>(before)]);
    action_of.push_back(static_cast<int>(actions_.size()));
    actions_.push_back(std::move(action));
  }
  add_dependences(first);
}

// Adds dependences among the actions from `first` on, which all belong to one rank. Each action
// follows all earlier ones that write a range that it touches, or touch a range that it writes.
void Checker::add_dependences(size_t first) {
  const auto reads = [](const Action& action, const Range& range) {
    if (action.kind == StepKind::kSend) return overlaps(action.range, range);
    for (const Source& source : action.sources)
      if (source.peer < 0 && overlaps(source.range, range)) return true;
    return false;
  };
  for (size_t i = first; i < actions_.size(); ++i) {
    const Action& mine = actions_[i];
    const bool writes = mine.kind != StepKind::kSend;
    for (size_t j = first; j < i; ++j) {
      const Action& other = actions_[j];
      const bool written = other.kind != StepKind::kSend &&
                           (overlaps(mine.range, other.range) || reads(mine, other.range));
      if (written || (writes && reads(other, mine.range)))
        actions_[i].after.push_back(static_cast<int>(j));
    }
  }
}

void Checker::add_leaves() {
  terms_.emplace_back();
  for (int rank = 0; rank < what_.size; ++rank) {
    first_leaf_.push_back(static_cast<Value>(terms_.size()));
    const Counts counts = counts_of(what_, rank);
    const int64_t brought = std::max(counts.input, counts.output);
    for (int64_t element = 0; element < brought; ++element)
      terms_.push_back({rank, element, false, {}});
  }
}

size_t Checker::HashOfValues::operator()(const std::vector<Value>& values) const {
  size_t hash = values.size();
  for (const Value value : values)
    hash = (hash ^ static_cast<size_t>(value)) * 0x9e3779b97f4a7c15;  // 2^64 / golden ratio
  return hash ^ hash >> 32;
}

Checker::Value Checker::reduce_of(bool finish, std::vector<Value> operands) {
  const auto [at, is_new] =
      reduces_[finish].try_emplace(std::move(operands), static_cast<Value>(terms_.size()));
  if (is_new) terms_.push_back({-1, -1, finish, at->first});
  return at->second;
}

std::vector<Checker::Value>& Checker::memory(int rank, BufferId buffer) {
  return memory_[static_cast<size_t>(rank) * 3 + static_cast<size_t>(buffer)];
}

void Checker::reset(const std::vector<std::vector<int>>& after) {
  for (Channel& channel : channels_) channel.sent = channel.received = 0;
  memory_.assign(static_cast<size_t>(what_.size) * 3, {});
  const bool in_place = traits_of(what_.kind).in_place;
  for (int rank = 0; rank < what_.size; ++rank) {
    const Counts counts = counts_of(what_, rank);
    const auto fill = [&](BufferId buffer, int64_t count) {
      for (int64_t e = 0; e < count; ++e) memory(rank, buffer).push_back(leaf(rank, e));
    };
    fill(BufferId::kInput, counts.input);
    memory(rank, BufferId::kScratch).assign(static_cast<size_t>(scratch_counts_[rank]), 0);
    if (in_place)
      fill(BufferId::kOutput, counts.output);
    else
      memory(rank, BufferId::kOutput).assign(static_cast<size_t>(counts.output), 0);
  }
  before_.assign(actions_.size(), {});
  waits_for_.assign(actions_.size(), 0);
  for (size_t a = 0; a < actions_.size(); ++a) {
    waits_for_[a] = static_cast<int>(after[a].size());
    for (int earlier : after[a]) before_[earlier].push_back(static_cast<int>(a));
  }
  woken_.assign(actions_.size(), false);
  done_.assign(actions_.size(), false);
  known_.assign(actions_.size(), {});
  runnable_.clear();
}

bool Checker::can_run(int a) const {
  if (waits_for_[a] > 0) return false;
  for (const Edge& edge : actions_[a].in) {
    const Channel& channel = channels_[edge.channel];
    if (!channel.full() || channel.received != edge.index) return false;
  }
  for (const Edge& edge : actions_[a].out) {
    const Channel& channel = channels_[edge.channel];
    if (channel.full() || channel.sent != edge.index) return false;
  }
  return true;
}

// Queues an action that can run. It stays runnable, because no other action uses its ends of its
// channels, so one wake-up is enough.
void Checker::wake(int a) {
  if (woken_[a] || !can_run(a)) return;
  woken_[a] = true;
  runnable_.push_back(a);
}

std::string Checker::execute(int a) {
  const Action& action = actions_[a];
  Ranks known;
  known.set(static_cast<size_t>(action.rank));
  for (int earlier : action.after) known |= known_[earlier];
  std::vector<std::vector<Value>> arrived;
  for (const Edge& edge : action.in) {
    Channel& channel = channels_[edge.channel];
    ++channel.received;
    known |= channel.known;
    arrived.push_back(std::move(channel.message));
  }
  known_[a] = known;
  done_[a] = true;
  std::string wrong;
  if (action.kind == StepKind::kSend) {
    const std::vector<Value>& from = memory(action.rank, action.range.buffer);
    for (const Edge& edge : action.out) {
      Channel& channel = channels_[edge.channel];
      ++channel.sent;
      channel.known = known;
      channel.message.assign(from.begin() + action.range.offset, from.begin() + action.range.end());
    }
  } else {
    wrong = store_result(action, std::move(arrived));
  }
  for (int later : before_[a])
    if (--waits_for_[later] == 0) wake(later);
  const auto wake_message = [&](const std::vector<int>& ends, int index) {
    if (index < static_cast<int>(ends.size())) wake(ends[index]);
  };
  for (const Edge& edge : action.in)
    wake_message(channels_[edge.channel].senders, channels_[edge.channel].sent);
  for (const Edge& edge : action.out)
    wake_message(channels_[edge.channel].receivers, channels_[edge.channel].received);
  return wrong;
}

std::string Checker::store_result(const Action& action, std::vector<std::vector<Value>> arrived) {
  std::vector<Value>& to = memory(action.rank, action.range.buffer);
  for (int64_t e = 0; e < action.range.count; ++e) {
    Value value = 0;
    if (action.kind == StepKind::kRecv) {
      value = arrived[0][e];
    } else {
      std::vector<Value> operands;
      operands.reserve(action.sources.size());
      size_t message = 0;
      for (const Source& source : action.sources)
        operands.push_back(source.peer >= 0
                               ? arrived[message++][e]
                               : memory(action.rank, source.range.buffer)[source.range.offset + e]);
      for (Value operand : operands)
        if (operand == 0)
          return "rank " + std::to_string(action.rank) + " step " + std::to_string(action.step) +
                 " reads what nobody wrote";
      value = action.kind == StepKind::kCopy ? operands[0]
                                             : reduce_of(action.finish, std::move(operands));
    }
    to[action.range.offset + e] = value;
  }
  return "";
}

std::string Checker::run(const std::vector<std::vector<int>>& after, std::mt19937_64* random) {
  reset(after);
  for (size_t a = 0; a < actions_.size(); ++a) wake(static_cast<int>(a));
  size_t finished = 0;
  while (!runnable_.empty()) {
    const size_t pick = random != nullptr ? (*random)() % runnable_.size() : runnable_.size() - 1;
    std::swap(runnable_[pick], runnable_.back());
    const int a = runnable_.back();
    runnable_.pop_back();
    if (std::string wrong = execute(a); !wrong.empty()) return wrong;
    ++finished;
  }
  return finished < actions_.size() ? stuck() : wrong_result();
}

std::string Checker::run_in_program_order() {
  std::vector<std::vector<int>> after(actions_.size());
  for (size_t a = 1; a < actions_.size(); ++a)
    if (actions_[a].rank == actions_[a - 1].rank) after[a] = {static_cast<int>(a) - 1};
  return run(after, nullptr);
}

std::string Checker::run_in_random_order(uint64_t seed) {
  std::vector<std::vector<int>> after;
  for (const Action& action : actions_) after.push_back(action.after);
  std::mt19937_64 random(seed);
  return run(after, &random);
}

// Describes a deadlock by the first unfinished action of each rank that waits for a peer only.
std::string Checker::stuck() const {
  std::string out = "deadlock:";
  int last_rank = -1;
  for (size_t a = 0; a < actions_.size(); ++a) {
    const Action& action = actions_[a];
    if (done_[a] || waits_for_[a] > 0 || action.rank == last_rank) continue;
    last_rank = action.rank;
    out += "\n  rank " + std::to_string(action.rank) + " step " + std::to_string(action.step);
    for (const Edge& edge : action.in) {
      const Channel& channel = channels_[edge.channel];
      if (!channel.full() || channel.received != edge.index)
        out += " waits for message " + std::to_string(edge.index) + " of rank " +
               std::to_string(edge.channel / what_.size);
    }
    for (const Edge& edge : action.out) {
      const Channel& channel = channels_[edge.channel];
      if (channel.full() || channel.sent != edge.index)
        out += " waits to send message " + std::to_string(edge.index) + " to rank " +
               std::to_string(edge.channel % what_.size);
    }
  }
  return out;
}

std::string Checker::wrong_result() {
  std::vector<Ranks> known(static_cast<size_t>(what_.size));
  for (size_t a = 0; a < actions_.size(); ++a) known[actions_[a].rank] |= known_[a];
  for (int rank = 0; rank < what_.size; ++rank) {
    if (what_.kind == Collective::kBarrier && what_.size > 1 &&
        static_cast<int>(known[rank].count()) != what_.size)
      return "rank " + std::to_string(rank) + " can leave the barrier before all have come";
    const std::vector<Value>& output = memory(rank, BufferId::kOutput);
    for (size_t e = 0; e < output.size(); ++e)
      if (std::string wrong = wrong_value(rank, static_cast<int64_t>(e), output[e]); !wrong.empty())
        return "rank " + std::to_string(rank) + " element " + std::to_string(e) + ": " + wrong;
  }
  return "";
}

std::string Checker::wrong_value(int rank, int64_t element, Value value) {
  const bool reduced = what_.kind == Collective::kAllreduce ||
                       what_.kind == Collective::kReduceScatter ||
                       (what_.kind == Collective::kReduce && rank == what_.root);
  if (what_.size == 1 || !reduced) {
    const Origin origin = origin_of(what_, rank, element);
    if (value == leaf(origin.rank, origin.element)) return "";
    return "is not what rank " + std::to_string(origin.rank) + " brought";
  }
  if (what_.kind == Collective::kReduceScatter)
    return wrong_sum(value, what_.sent_before(rank, rank) + element);
  // All ranks must have the same history: the same operations in the same order give the same
  // bits.
  if (what_.kind == Collective::kReduce || rank == 0) return wrong_sum(value, element);
  if (value == memory(0, BufferId::kOutput)[element]) return "";
  return "came about otherwise than on rank 0";
}

std::string Checker::wrong_sum(Value sum, int64_t element) {
  if (!terms_[sum].finish) return "is not finished";
  std::vector<int> ranks;  // ranks of the leaves, in the order of the sum
  std::vector<Value> open{sum};
  while (!open.empty()) {
    const Value value = open.back();
    open.pop_back();
    const Term& term = terms_[value];
    if (value != sum && term.finish) return "is finished twice";
    for (auto operand = term.operands.rbegin(); operand != term.operands.rend(); ++operand)
      open.push_back(*operand);
    if (!term.operands.empty()) continue;
    if (term.element != element) return "holds another element";
    ranks.push_back(term.rank);
  }
  if (what_.rank_ordered &&
      (!std::is_sorted(ranks.begin(), ranks.end()) || terms_[sum].operands.size() != ranks.size()))
    return "is not one reduce in rank order";
  std::vector<int> times(static_cast<size_t>(what_.size));
  for (int rank : ranks) ++times[rank];
  for (int rank = 0; rank < what_.size; ++rank)
    if (times[rank] != 1)
      return "holds rank " + std::to_string(rank) + " " + std::to_string(times[rank]) + " times";
  return "";
}

std::string problem(const Case& what, const std::vector<Schedule>& schedules, int orders,
                    uint64_t seed) {
  if (std::string wrong = structural_problem(what, schedules); !wrong.empty()) return wrong;
  Checker checker(what, schedules);
  if (std::string wrong = checker.run_in_program_order(); !wrong.empty())
    return "in program order: " + wrong;
  for (int i = 0; i < orders; ++i)
    if (std::string wrong = checker.run_in_random_order(seed + i); !wrong.empty())
      return "in random order " + std::to_string(seed + i) + ": " + wrong;
  return "";
}

}  // namespace ringdist::symbolic
