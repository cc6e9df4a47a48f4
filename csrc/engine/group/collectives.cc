#include "engine/group/collectives.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ringdist {

void Collectives::called(const Op& op) {
  check(op.number == last_called_ + 1, "an op out of the order of the calls");
  last_called_ = op.number;
  if (op.request.output_staged) undelivered_outputs_.insert(op.number);
}

bool Collectives::held_up(uint64_t barrier) const {
  return (!runs_.empty() && runs_.begin()->first < barrier) ||
         (!on_device_.empty() && on_device_.begin()->first < barrier) ||
         (!undelivered_outputs_.empty() && *undelivered_outputs_.begin() < barrier);
}

std::optional<uint64_t> Collectives::first_unfinished() const {
  std::optional<uint64_t> first;
  if (!runs_.empty()) first = runs_.begin()->first;
  const auto consider = [&first](uint64_t number) {
    first = std::min(first.value_or(UINT64_MAX), number);
  };
  if (!barriers_.empty()) consider(barriers_.front()->number);
  if (!on_device_.empty()) consider(on_device_.begin()->first);
  return first;
}

bool Collectives::keep(const std::shared_ptr<Op>& op) {
  if (op->request.kind != Collective::kBarrier || op->request.device_stream) return false;
  if (barriers_.empty() && !held_up(op->number)) return false;
  barriers_.push_back(op);
  return true;
}

// Barriers start in the order of their calls, so only the oldest one is considered.
std::shared_ptr<Op> Collectives::take_barrier() {
  if (barriers_.empty() || held_up(barriers_.front()->number)) return nullptr;
  auto barrier = std::move(barriers_.front());
  barriers_.pop_front();
  return barrier;
}

bool Collectives::ends_at_once(const Op& op) {
  if (!op.schedule->steps.empty()) return false;
  last_started_ = std::max(last_started_, op.number);
  return true;
}

std::vector<UnexpectedMessage> Collectives::start(std::shared_ptr<Op> op) {
  const uint64_t number = op->number;
  last_started_ = std::max(last_started_, number);
  OpExecution& run = *(runs_[number] = make_execution(delegate_, std::move(op), number));
  run.start();
  return unexpected_.take(number);
}

std::vector<UnexpectedMessage> Collectives::start_on_device(std::shared_ptr<Op> op) {
  const uint64_t number = op->number;
  last_started_ = std::max(last_started_, number);
  on_device_.emplace(number, std::move(op));
  return unexpected_.take(number);
}

bool Collectives::store_unexpected(const MessageHeader& header, const Payload& payload) {
  const bool waits = std::ranges::any_of(
      barriers_, [&](const auto& barrier) { return barrier->number == header.op; });
  if (header.op <= last_called_ && !waits) return false;
  unexpected_.push(header.op, header, payload);
  return true;
}

void Collectives::finished(const OpExecution& run) {
  const auto it = runs_.find(run.number());
  retire_(std::move(it->second));
  runs_.erase(it);
}

void Collectives::stop(const OpVisitor& tell) {
  unexpected_.clear();
  end_executions(runs_, tell, retire_);
  // An op is removed only after its callback has returned, so an exception of it loses no op.
  for (; !on_device_.empty(); on_device_.erase(on_device_.begin()))
    tell(on_device_.begin()->second, nullptr);
  for (; !barriers_.empty(); barriers_.pop_front()) tell(barriers_.front(), nullptr);
}

OpExecution* Collectives::find(uint64_t number) const {
  const auto it = runs_.find(number);
  return it == runs_.end() ? nullptr : it->second.get();
}

std::optional<Fingerprint> Collectives::call(uint64_t number) const {
  if (const OpExecution* run = find(number)) return run->op()->fingerprint;
  const auto it = on_device_.find(number);
  return it == on_device_.end() ? std::nullopt : std::optional(it->second->fingerprint);
}

uint64_t Collectives::last_running() const {
  const uint64_t here = runs_.empty() ? 0 : runs_.rbegin()->first;
  return on_device_.empty() ? here : std::max(here, on_device_.rbegin()->first);
}

std::optional<FailureState::Oldest> Collectives::first_running() const {
  std::optional<FailureState::Oldest> out;
  if (const OpExecution* run = oldest()) out = {run->number(), run->last_progress()};
  if (on_device_.empty()) return out;
  const auto& [number, op] = *on_device_.begin();
  return out && out->number < number ? out
                                     : std::optional(FailureState::Oldest{number, op->started});
}

std::string Collectives::dump() const {
  std::string out;
  for (const auto& barrier : barriers_)
    out += "\n   " + barrier->describe() + ": waits for what is before it";
  for (const auto& [number, run] : runs_) out += "\n   " + run->dump();
  for (const auto& [number, op] : on_device_) out += "\n   " + dump_on_device(*op);
  return out;
}

std::string Collectives::dump_unexpected() const {
  std::string out;
  unexpected_.for_each([&](uint64_t number, size_t count) {
    out += "\n   parked for op #" + std::to_string(number) + ": " + std::to_string(count) +
           " messages";
  });
  return out;
}

}  // namespace ringdist
