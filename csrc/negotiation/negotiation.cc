#include "negotiation/negotiation.h"

#include <utility>

#include "engine/deferred_release_op.h"

namespace ringdist {

Negotiation::Negotiation(std::shared_ptr<Communicator> group,
                         std::shared_ptr<NegotiationController> slot,
                         std::shared_ptr<Communicator> service_channel)
    : group_(std::move(group)), slot_(std::move(slot)), letters_(std::move(service_channel)) {}

Result<std::shared_ptr<Negotiation>> Negotiation::create(std::shared_ptr<Communicator> group,
                                                         NegotiationOptions options) {
  auto slot = std::make_shared<NegotiationController>(group, options);
  auto service_channel = group->duplicate("/names", slot);
  if (!service_channel.ok()) return service_channel.error();
  return std::shared_ptr<Negotiation>(
      new Negotiation(std::move(group), std::move(slot), std::move(service_channel.value())));
}

Error Negotiation::failure() const {
  const Error first = group_->failure();
  return first ? first : letters_->failure();
}

std::shared_ptr<Op> Negotiation::make_end(Milliseconds timeout) const {
  auto out = std::make_shared<DeferredReleaseOp>(OpRequest(), group_->context().pool());
  out->started = Clock::now();
  out->deadline = out->started + (timeout.count() > 0 ? timeout : group_->timeout());
  return out;
}

// Runs the task at once if the caller can get the progress lock, as Communicator::submit() does.
template <typename Task>
Error Negotiation::hand_over(Task task, bool will_wait) {
  if (group_->context().forked())
    return {ErrorKind::kAborted,
            "ringdist: this process was forked from one that had created group '" + group_->name() +
                "'"};
  if (Error error = failure())
    return error.prefixed("ringdist: group '" + group_->name() + "' has failed: ");
  ProgressEngine& progress = group_->context().progress();
  const auto turn = will_wait ? ProgressEngine::Guard(progress) : ProgressEngine::Guard();
  if (turn && !progress.has_tasks()) {
    task();
    return {};
  }
  if (progress.post(std::move(task), /*wake=*/!will_wait)) return {};
  return {ErrorKind::kAborted, "ringdist: this process has shut ringdist down"};
}

Result<std::shared_ptr<Op>> Negotiation::call(NamedCall call, bool will_wait) {
  const std::string name = call.name;
  const auto end = make_end(call.timeout);
  {
    std::lock_guard lock(mutex_);
    if (joined_ && !joined_->finished())
      return Error(ErrorKind::kInvalidArgument,
                   "ringdist: '" + name +
                       "': this rank has joined; it calls nothing until all "
                       "ranks have");
    const auto [at, is_new] = taken_.try_emplace(name);
    if (!is_new && !(at->second.is_released && at->second.end->finished()))
      return Error(ErrorKind::kInvalidArgument,
                   "ringdist: name='" + name +
                       "' is taken by a call that has not been "
                       "synchronized; use another name, or synchronize() that one first");
    at->second = {end};
  }
  auto open = std::make_shared<NegotiationController::PendingCall>(
      NegotiationController::PendingCall{std::move(call), end});
  const Error error = hand_over([slot = slot_, open] { slot->call(std::move(*open)); }, will_wait);
  if (!error) return end;
  std::lock_guard lock(mutex_);
  taken_.erase(name);
  return error;
}

void Negotiation::release(const std::string& name, const Op& end) {
  if (group_->context().forked()) return;  // another thread of the parent may hold the mutex
  std::lock_guard lock(mutex_);
  const auto at = taken_.find(name);
  // the name belongs to a later call
  if (at == taken_.end() || at->second.end.get() != &end) return;
  at->second.is_released = true;
  if (end.finished()) taken_.erase(at);
}

Result<NegotiationController::Join> Negotiation::join(FillOnDevice on_device) {
  NegotiationController::Join out{make_end(Milliseconds(0)), std::make_shared<int>(-1),
                                  std::move(on_device)};
  out.end->deadline = TimePoint::max();  // other ranks may still have much work
  {
    std::lock_guard lock(mutex_);
    if (joined_ && !joined_->finished())
      return Error(ErrorKind::kInvalidArgument, "ringdist: join: this rank has joined already");
    joined_ = out.end;
  }
  if (Error error = hand_over([slot = slot_, out] { slot->join(out); }, /*will_wait=*/false)) {
    std::lock_guard lock(mutex_);
    joined_ = nullptr;
    return error;
  }
  return out;
}

Error Negotiation::tune(int64_t fusion_bytes, int batches_in_flight) {
  return hand_over([slot = slot_, fusion_bytes,
                    batches_in_flight] { slot->tune(fusion_bytes, batches_in_flight); },
                   /*will_wait=*/false);
}

Error Negotiation::start_timeline(const std::string& path, bool marks_cycles) {
  if (Error error = failure()) return error;
  const auto answer = std::make_shared<Error>();
  const auto task = [slot = slot_, answer, path, marks_cycles] {
    *answer = slot->start_timeline(path, marks_cycles);
  };
  if (!group_->context().progress().call(task, Clock::now() + Context::kFinishTime))
    return {ErrorKind::kTimeout, "ringdist: timeline: the lane is busy"};
  return *answer;
}

Result<std::shared_ptr<Op>> Negotiation::stop_timeline() {
  auto end = make_end(Milliseconds(0));
  if (Error error = hand_over([slot = slot_, end] { slot->stop_timeline(end); },
                              /*will_wait=*/false))
    return error;
  return end;
}

void Negotiation::close() {
  if (group_->context().forked()) return;
  ProgressEngine& progress = group_->context().progress();
  const auto idle = [slot = slot_] { return slot->idle(); };
  (void)progress.call_until(idle, Clock::now() + Context::kFinishTime);
  (void)progress.call([slot = slot_] { slot->close(); }, Clock::now() + Context::kFinishTime);
  letters_->close();
  group_->close();
}

}  // namespace ringdist
