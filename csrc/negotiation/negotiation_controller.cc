#include "negotiation/negotiation_controller.h"

#include <functional>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"

namespace ringdist {
namespace {

// Errors that all ranks return alike end only the call. After others, ranks may have diverged.
bool ends_the_group(const Error& error) {
  return error && error.kind() != ErrorKind::kInvalidArgument &&
         error.kind() != ErrorKind::kNotSupported;
}

}  // namespace

Error DeviceQueue::add(std::vector<OpRequest> requests) {
  std::lock_guard lock(mutex_);
  // The task waits for the mutex.
  if (!is_starting_ &&
      !group_->context().pool().run([self = shared_from_this()] { self->start_all(); }))
    return {ErrorKind::kAborted, "ringdist: this process has shut ringdist down"};
  is_starting_ = true;
  for (OpRequest& request : requests) waiting_.push_back(std::move(request));
  return {};
}

void DeviceQueue::start_all() {
  for (;;) {
    OpRequest next;
    {
      std::lock_guard lock(mutex_);
      is_starting_ = !waiting_.empty();
      if (!is_starting_) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    start(std::move(next));
  }
}

void DeviceQueue::start(OpRequest request) {
  // An op may end twice if its device rejects it after it got its number.
  auto ended = [self = shared_from_this(), tell = std::exchange(request.on_end, nullptr),
                told = false](const Error& error) mutable {
    if (std::exchange(told, true)) return;
    if (ends_the_group(error)) self->group_->fail(error);
    tell(error);
  };
  const auto once = std::make_shared<decltype(ended)>(std::move(ended));
  request.on_end = [once](const Error& error) { (*once)(error); };
  const Error error = [&]() -> Error {
    try {
      const auto group = devices();
      if (!group.ok()) return group.error();
      return group.value()->submit(std::move(request), /*will_wait=*/false).error();
    } catch (...) {
      return current_exception_error();
    }
  }();
  if (error) group_->context().progress().post([once, error] { (*once)(error); });
}

Result<std::shared_ptr<Communicator>> DeviceQueue::devices() {
  if (devices_) return devices_;
  auto made = group_->duplicate("/on-devices");
  if (made.ok()) devices_ = made.value();
  return made;
}

NegotiationController::NegotiationController(std::shared_ptr<Communicator> group,
                                             NegotiationOptions options)
    : name_(group->name()),
      rank_(group->rank()),
      options_(options),
      context_(group->context()),
      group_(std::move(group)),
      devices_(std::make_shared<DeviceQueue>(group_)) {}

void NegotiationController::begin(GroupServiceDelegate& post) {
  post_ = &post;
  const int size = static_cast<int>(post.topology().host_of.size());
  negotiator_.emplace(static_cast<NegotiatorDelegate&>(*this), post.topology(), rank_,
                      options_.order);
  stalls_.emplace(static_cast<StallDelegate&>(*this), rank_, size, options_.warn_after);
  timeline_.emplace(
      dispatcher(), post, rank_, name_,
      [this](int rank, std::vector<std::byte> message) {
        this->post(MessageKind::kTimeline, rank, std::move(message));
      },
      [this](std::shared_ptr<void> what) { discard(std::move(what)); });
  if (const auto wanted = std::exchange(timeline_wanted_, std::nullopt))
    if (Error error = timeline_->start(wanted->first, wanted->second)) warn(error.message());
  for (PendingCall& open : std::exchange(waiting_, {})) make(std::move(open));
  if (join_) negotiator_->join();
  end_if_broken();
}

void NegotiationController::call(PendingCall open) {
  if (cause_) return end_one(open, cause_);
  if (join_)  // it joined after Negotiation::call() had checked
    return end_one(open, Error(ErrorKind::kInvalidArgument,
                               "ringdist: '" + open.call.name + "': this rank has joined"));
  if (!negotiator_) return waiting_.push_back(std::move(open));
  make(std::move(open));
  end_if_broken();
}

void NegotiationController::make(PendingCall open) {
  const auto [at, is_new] = open_.emplace(open.call.name, std::move(open));
  check(is_new, "a name is of one call at a time");
  const NamedCall& call = at->second.call;
  negotiator_->call(call.name, call.description, call.extra);
}

void NegotiationController::join(Join join) {
  if (cause_) return finish(join.end, cause_);
  check(!join_, "a rank joins once");
  join_ = std::move(join);
  if (!negotiator_) return;
  negotiator_->join();
  end_if_broken();
}

Error NegotiationController::on_service_message(int rank, ConstBytes bytes) {
  if (bytes.empty()) return {ErrorKind::kProtocol, "ringdist: negotiation: an empty message"};
  const auto kind = static_cast<MessageKind>(bytes.back());
  const ConstBytes message = bytes.first(bytes.size() - 1);
  if (kind == MessageKind::kStall) return stalls_->receive(rank, message, Clock::now());
  Error error = kind == MessageKind::kTimeline ? timeline_->receive(rank, message)
                                               : negotiator_->receive(rank, message);
  if (error) return error;
  end_if_broken();
  return {};
}

void NegotiationController::post(MessageKind kind, int rank, std::vector<std::byte> message) {
  message.push_back(static_cast<std::byte>(kind));
  post_->send_service_message(rank, std::move(message));
}

// Failing comes last, because the group may be destroyed by it.
void NegotiationController::end_if_broken() {
  if (!post_) return;
  do {
    ran_at_once_ = false;
    negotiator_->flush();
  } while (ran_at_once_);
  if (broken_) return post_->fail(broken_);
  post_->set_needs_all_members(!open_.empty() || join_ || timeline_->gathers());
}

void NegotiationController::send(int rank, std::vector<std::byte> message) {
  post(MessageKind::kOrder, rank, std::move(message));
}

void NegotiationController::send_stall(int rank, std::vector<std::byte> message) {
  post(MessageKind::kStall, rank, std::move(message));
}

std::string NegotiationController::elsewhere() const {
  const std::string status = dispatcher().status();
  return status == Dispatcher::kIdle ? "" : status;
}

std::pair<TimePoint, std::string> NegotiationController::waiting_for() const {
  std::pair<TimePoint, std::string> out{TimePoint::max(), ""};
  for (const auto& [name, open] : open_)
    if (open.end->started < out.first)
      out = {open.end->started, "'" + name + "' waits for " + awaited(name)};
  return out;
}

std::string NegotiationController::awaited(const std::string& name) const {
  const std::string found = stalls_ ? stalls_->awaits(name) : "";
  return found.empty() ? "all ranks to call it" : found;
}

std::vector<StallDelegate::OpenCall> NegotiationController::open_calls() const {
  std::vector<OpenCall> out;
  for (const auto& [name, open] : open_) out.push_back({name, open.end->started});
  return out;
}

void NegotiationController::warn(const std::string& text) {
  log(LogLevel::kWarn, "group '" + name_ + "': " + text);
}

Error NegotiationController::start_timeline(const std::string& path, bool marks_cycles) {
  if (cause_) return cause_;
  if (timeline_) return timeline_->start(path, marks_cycles);
  timeline_wanted_ = {path, marks_cycles};
  return {};
}

void NegotiationController::stop_timeline(std::shared_ptr<Op> end) {
  timeline_wanted_.reset();
  if (cause_ || !timeline_) return finish(end, cause_);
  timeline_->stop(std::move(end));
  end_if_broken();
}

void NegotiationController::run(const std::vector<ResponseCache::AgreedCall>& calls) {
  auto batch = std::make_shared<FusedCalls>();
  ++running_;
  Error error;
  try {
    error = start(calls, batch);
  } catch (...) {
    error = current_exception_error();
  }
  if (!error) return;
  // All other ranks run the batch, so the group must end.
  if (!broken_)
    broken_ = Error(ErrorKind::kSystem,
                    "ringdist: rank " + std::to_string(rank_) + " of group '" + name_ +
                        "' cannot run what all have called: " + error.message());
  finish(*batch, broken_);
  discard(std::move(batch));
}

Error NegotiationController::start(const std::vector<ResponseCache::AgreedCall>& calls,
                                   const std::shared_ptr<FusedCalls>& batch) {
  if (Error error = prepare(calls, *batch)) return error;
  std::vector<OpRequest> requests = batch->take_requests();
  if (requests.empty()) {
    finish(*batch, {});
    negotiator_->ran();
    ran_at_once_ = true;
  }
  for (OpRequest& request : requests)
    request.on_end = [slot = shared_from_this(), batch](const Error& why) {
      slot->ended(batch, why);
    };
  if (!requests.empty() && requests[0].device_stream) return devices_->add(std::move(requests));
  // kept, because the batch may have ended when submit() returns
  const auto running = batch->running();
  for (OpRequest& request : requests) {
    // After an error, ops that have been started end with the group.
    auto op = group_->submit(std::move(request), /*will_wait=*/false);
    if (!op.ok()) return op.error();
    running->push_back(std::move(op.value()));
  }
  return {};
}

// A joined rank contributes neutral values.
Error NegotiationController::prepare(const std::vector<ResponseCache::AgreedCall>& calls,
                                     FusedCalls& batch) {
  timeline_->begin_batch();
  std::vector<std::shared_ptr<PendingCall>> mine(calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    auto found = open_.extract(calls[i].entry->name);
    if (found.empty() && !join_) return {ErrorKind::kAborted, "it has ended its calls"};
    if (found.empty()) continue;
    mine[i] = std::make_shared<PendingCall>(std::move(found.mapped()));
    timeline_->add(mine[i]->call, mine[i]->end->started, calls[i].last, batch);
    batch.add_end(std::move(mine[i]->end));  // it holds the op, which holds the batch
    batch.keep(mine[i]);
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    const ResponseCache::CachedCall& entry = *calls[i].entry;
    auto parts = mine[i] ? mine[i]->call.requests(entry.extras)
                         : joined_contribution(entry.description, join_->on_device);
    if (!parts.ok()) return parts.error();
    batch.add(std::move(parts.value()));
  }
  return {};
}

void NegotiationController::ended(const std::shared_ptr<FusedCalls>& batch, const Error& error) {
  if (!batch->end_one(error)) return;
  finish(*batch, batch->error());
  if (cause_) return;
  try {
    negotiator_->ran();
    end_if_broken();
  } catch (...) {
    broken_ = current_exception_error();
    if (post_) post_->fail(broken_);
  }
}

void NegotiationController::finish(FusedCalls& batch, const Error& error) {
  --running_;
  timeline_->end_batch(batch, error);
  for (const auto& end : batch.take_ends()) finish(end, error);
}

void NegotiationController::fail(const std::string& name, const std::string& why) {
  auto mine = open_.extract(name);
  if (mine.empty()) return;
  end_one(mine.mapped(),
          Error(ErrorKind::kMismatch, "ringdist: rank " + std::to_string(rank_) + " of group '" +
                                          name_ + "': '" + name + "': " + why));
}

void NegotiationController::all_joined(int last) {
  if (!join_) return;
  const Join join = *std::exchange(join_, std::nullopt);
  *join.last = last;
  finish(join.end, {});
}

Error NegotiationController::tick(TimePoint now) {
  for (const auto& [name, open] : open_)
    if (now > open.end->deadline)
      return {ErrorKind::kTimeout,
              "Timed out waiting " +
                  std::to_string(std::chrono::duration_cast<Milliseconds>(open.end->deadline -
                                                                          open.end->started)
                                     .count()) +
                  " ms for all ranks to call '" + name + "', " + open.call.description.words +
                  ", which rank " + std::to_string(rank_) + " has called"};
  stalls_->tick(now);
  return {};
}

void NegotiationController::close() {
  if (!cause_)
    cause_ = Error(ErrorKind::kAborted, "ringdist: group '" + name_ +
                                            "' was destroyed before all ranks had "
                                            "called it");
  end_all();
  if (timeline_) timeline_->end(cause_);
  if (post_) post_->set_needs_all_members(false);
}

void NegotiationController::end(const Error& cause) noexcept {
  if (!cause_) cause_ = cause;
  post_ = nullptr;
  end_all();
  auto group = std::exchange(group_, nullptr);
  auto devices = std::exchange(devices_, nullptr);
  // Agreed ops in `group` may wait for ops that a rank does not start any more, so it must fail.
  if (group && cause.kind() != ErrorKind::kAborted) {
    try {
      group->fail(cause);
    } catch (...) {  // out of memory: the group ends by its timeout
    }
  }
  if (timeline_) timeline_->end(cause_);
  if (devices) discard(std::move(devices));
  if (group) discard(std::move(group));
}

void NegotiationController::end_all() noexcept {
  for (; !waiting_.empty(); waiting_.pop_front()) end_one(waiting_.front(), cause_);
  for (; !open_.empty(); open_.erase(open_.begin())) end_one(open_.begin()->second, cause_);
  if (join_) finish(join_->end, cause_);
  join_.reset();
}

void NegotiationController::end_one(PendingCall& open, const Error& error) noexcept {
  finish(open.end, error);
  try {
    discard(std::make_shared<PendingCall>(std::move(open)));
  } catch (...) {  // out of memory: it is destroyed here
  }
}

// Destroying tensors may need the GIL, and destroying the group may need a store.
void NegotiationController::discard(std::shared_ptr<void> what) noexcept {
  try {
    context_.pool().run([what = std::move(what)] {});
  } catch (...) {  // there is no thread for it
  }
}

void NegotiationController::finish(const std::shared_ptr<Op>& op, const Error& error) noexcept {
  dispatcher().finish_op(op, error);
}

std::string NegotiationController::dump() const {
  std::string out;
  for (const auto& [name, open] : open_)
    out += "\n   '" + name + "', " + open.call.description.words + ": waits for " + awaited(name);
  return out;
}

}  // namespace ringdist
