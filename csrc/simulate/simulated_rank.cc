#include "simulate/simulated_rank.h"

#include <algorithm>

#include "algorithm/cost.h"

namespace ringdist {
namespace {

// Appends `part` to `list` and returns its index range.
template <typename T>
std::pair<int, int> append(std::vector<T>& list, const std::vector<T>& part) {
  const auto first = static_cast<int>(list.size());
  list.insert(list.end(), part.begin(), part.end());
  return {first, static_cast<int>(list.size())};
}

}  // namespace

// Lists of all steps are stored one after another, because vectors for each of millions of steps
// would cost more memory.
SimulatedRank::SimulatedRank(const CompiledSchedule& schedule, int64_t window)
    : segment_count_(schedule.segment_count), window_(window), unfinished_(schedule.steps.size()) {
  steps_.reserve(schedule.steps.size());
  for (const CompiledStep& compiled : schedule.steps) {
    const auto index = static_cast<int>(steps_.size());
    Step step{compiled.step.kind, compiled.step.range.count, compiled.segments, {}, {}, {}, {}, {}};
    step.after = append(after_, compiled.after);
    step.follows = append(follows_, compiled.step.follows);
    step.before = append(before_, compiled.before);
    step.in.first = static_cast<int>(ins_.size());
    for (const EdgeId& edge : compiled.in) {
      in_of_[{edge.peer, edge.edge}] = static_cast<int>(ins_.size());
      ins_.push_back({index, edge.peer, edge.edge});
    }
    step.in.second = static_cast<int>(ins_.size());
    step.out.first = static_cast<int>(outs_.size());
    for (const EdgeId& edge : compiled.out)
      outs_.push_back(
          {index, edge.peer, edge.edge, compiled.step.edge_kind == EdgeKind::kIntraHost});
    step.out.second = static_cast<int>(outs_.size());
    step.stored =
        compiled.step.kind == StepKind::kRelay ||
        (compiled.producer >= 0 &&
         schedule.steps[static_cast<size_t>(compiled.producer)].step.kind == StepKind::kReduce);
    steps_.push_back(step);
  }
  for (int step = 0; step < static_cast<int>(steps_.size()); ++step) queue(step);
}

int SimulatedRank::find_in(int peer, uint32_t edge) const {
  const auto it = in_of_.find({peer, edge});
  return it == in_of_.end() ? -1 : it->second;
}

double SimulatedRank::copied_of(int out) const {
  const Step& step = steps_[static_cast<size_t>(outs_[static_cast<size_t>(out)].step)];
  if (out > step.out.first) return 0;
  return step.stored ? kStoredCopy : 1;
}

int64_t SimulatedRank::count_of(int at, int64_t segment) const {
  const int64_t count = steps_[static_cast<size_t>(outs_[static_cast<size_t>(at)].step)].count;
  return std::min(count - segment * segment_count_, segment_count_);
}

void SimulatedRank::arrived(int in) {
  In& one = ins_[static_cast<size_t>(in)];
  ++one.arrived;
  queue(one.step);
}

void SimulatedRank::left(int out) {
  Out& one = outs_[static_cast<size_t>(out)];
  ++one.left;
  progressed(one.step);
}

void SimulatedRank::consumed(int out) {
  Out& one = outs_[static_cast<size_t>(out)];
  ++one.consumed;
  queue(one.step);
}

void SimulatedRank::queue(int step) {
  Step& one = steps_[static_cast<size_t>(step)];
  if (one.done || std::exchange(one.queued, true)) return;
  queue_.push_back(step);
}

bool SimulatedRank::work(std::vector<Done>& done) {
  if (next_ == queue_.size()) return false;
  while (next_ < queue_.size()) {
    const int step = queue_[next_++];
    steps_[static_cast<size_t>(step)].queued = false;
    if (advance(step, done)) queue(step);
  }
  queue_.clear();
  next_ = 0;
  return true;
}

// Corresponds to StepProgress::progress_of().
int64_t SimulatedRank::progress_of(const Step& step, bool finished) const {
  int64_t segments = writes(step) ? step.written : step.segments;
  if (finished || !writes(step))
    for (int out = step.out.first; out < step.out.second; ++out)
      segments = std::min(segments, outs_[static_cast<size_t>(out)].left);
  return std::min(step.count, segments * segment_count_);
}

bool SimulatedRank::complete(const Step& step) const {
  const auto sent = [&](const Out& out) { return out.left == step.segments; };
  return (!writes(step) || step.written == step.segments) &&
         std::all_of(outs_.begin() + step.out.first, outs_.begin() + step.out.second, sent);
}

bool SimulatedRank::ready(const Step& step, int64_t segment) const {
  const auto done = [&](int before) { return complete(steps_[static_cast<size_t>(before)]); };
  if (!std::all_of(follows_.begin() + step.follows.first, follows_.begin() + step.follows.second,
                   done))
    return false;
  const int64_t end = std::min(step.count, (segment + 1) * segment_count_);
  return std::all_of(after_.begin() + step.after.first, after_.begin() + step.after.second,
                     [&](const Dependency& one) {
                       const int64_t need = std::clamp<int64_t>(one.shift + end, 0, one.limit);
                       return progress_of(steps_[static_cast<size_t>(one.on)], one.finished) >=
                              need;
                     });
}

bool SimulatedRank::can_write(const Step& step) const {
  return step.written < step.segments &&
         std::all_of(
             ins_.begin() + step.in.first, ins_.begin() + step.in.second,
             [&](const In& in) { return in.arrived > step.written; }) &&
         ready(step, step.written);
}

bool SimulatedRank::write(Step& step, std::vector<Done>& done) {
  if (!writes(step) || !can_write(step)) return false;
  ++step.written;
  for (int in = step.in.first; in < step.in.second; ++in)
    done.push_back({false, in, step.written - 1});
  return true;
}

// A step that writes sends only segments that it has written. The window limits segments that the
// receiver has not consumed.
bool SimulatedRank::send(const Step& step, std::vector<Done>& done) {
  bool any = false;
  for (int at = step.out.first; at < step.out.second; ++at) {
    Out& out = outs_[static_cast<size_t>(at)];
    const bool there =
        writes(step) ? out.sent < step.written : out.sent < step.segments && ready(step, out.sent);
    if (!there || out.sent - out.consumed >= window_) continue;
    done.push_back({true, at, out.sent++});
    any = true;
  }
  return any;
}

// Advances a step by one segment, and sends one to each target. Returns true if something was done,
// so that more may follow.
bool SimulatedRank::advance(int step, std::vector<Done>& done) {
  Step& one = steps_[static_cast<size_t>(step)];
  if (one.done) return false;
  const bool wrote = write(one, done);
  if (wrote) progressed(step);
  const bool sent = send(one, done);
  return wrote || sent;
}

// Corresponds to ExecutionState::after_progress().
void SimulatedRank::progressed(int step) {
  Step& one = steps_[static_cast<size_t>(step)];
  for (int at = one.before.first; at < one.before.second; ++at)
    queue(before_[static_cast<size_t>(at)]);
  if (one.done || !complete(one)) return;
  one.done = true;
  --unfinished_;
}

}  // namespace ringdist
