#include "engine/communicator.h"

#include <algorithm>

#include "base/check.h"
#include "base/describe.h"
#include "base/log.h"
#include "engine/bootstrap/derived_bootstrap.h"
#include "engine/bootstrap/group_bootstrap.h"
#include "engine/bootstrap/store_bootstrap.h"
#include "engine/deferred_release_op.h"
#include "engine/device/device_group.h"
#include "engine/progress/progress_lock.h"

namespace ringdist {
namespace {

constexpr auto kTaskTime = std::chrono::seconds(10);
constexpr Duration kWordTime = Milliseconds(200);  // for a write to a store that answers
constexpr Duration kLeaveTime = std::chrono::seconds(1);

Error shut_down() { return {ErrorKind::kAborted, "ringdist: this process has shut ringdist down"}; }
Error departed() { return {ErrorKind::kAborted, "ringdist: the group is gone"}; }

}  // namespace

Communicator::Communicator(std::shared_ptr<Context> context, CommunicatorOptions options,
                           std::shared_ptr<GroupBootstrap> formation,
                           GroupMembership::GenerationRef place)
    : context_(std::move(context)),
      options_(std::move(options)),
      formation_(std::move(formation)),
      devices_(std::make_shared<DeviceOps>(static_cast<DeviceOpsDelegate&>(*this), options_.name,
                                           options_.make_runner)),
      slot_(std::make_shared<GroupSlot>(context_->progress().dispatcher(), options_.rank,
                                        options_.size, group_config())),
      planner_(std::make_shared<OpPlanner>(
          PlannerOptions{options_.rank, options_.size, options_.config.algorithm,
                         options_.config.deterministic == "layout", options_.config.segment_bytes,
                         options_.costs.constants})),
      own_(std::move(place)),
      timeout_(options_.timeout) {}

GroupConfig Communicator::group_config() const {
  GroupConfig config;
  config.service = options_.service;
  config.name = name();
  config.warn_after = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(options_.config.warn_after));
  config.eager_window = eager_window(options_.config);
  // Runs in a progress engine of the Context, so its pool exists. Work goes to the pool: hooks may
  // need the GIL, an abort may write to the store, and here neither may hold a last reference.
  config.on_failed = [failure = failure_, hooks = std::weak_ptr(hooks_),
                      devices = std::weak_ptr(devices_), runs = options_.make_runner != nullptr,
                      formation = std::weak_ptr(formation_),
                      &pool = context_->pool()](const Error& error) {
    const auto duplicates = failure->set(error);
    GroupBootstrap::group_failed(formation, pool);
    // Before the hooks, which need not wait: a thread with the GIL may be waiting for a device.
    if (runs)
      pool.run([devices] {
        if (const auto held = devices.lock()) held->abort();
      });
    if (auto held = hooks.lock(); held && !held->empty())
      pool.run_callbacks([held = std::move(held)] { held->call_failed(); });
    for (const auto& duplicate : duplicates)
      pool.run([duplicate, why = error.message()] {
        if (auto one = duplicate.lock()) one->abort("the group it belongs to failed: " + why);
      });
  };
  return config;
}

Result<std::shared_ptr<Communicator>> Communicator::create(std::shared_ptr<Context> context,
                                                           CommunicatorOptions options) {
  auto formation = std::make_shared<StoreBootstrap>(context, options, StoreBootstrap::Decided{});
  return create(std::move(context), std::move(options), std::move(formation));
}

Result<std::shared_ptr<Communicator>> Communicator::create(
    std::shared_ptr<Context> context, CommunicatorOptions options,
    std::shared_ptr<GroupBootstrap> formation, GroupMembership::GenerationRef place) {
  std::shared_ptr<Communicator> out(new Communicator(std::move(context), std::move(options),
                                                     std::move(formation), std::move(place)));
  Communicator& self = *out;
  ProgressEngine& progress = self.context_->progress();
  if (Error error = self.formation_->publish()) return error;
  progress.post([&progress, slot = self.slot_] { progress.dispatcher().add(slot); });
  // Starts before the first op: a send and its receive must meet even if other ranks call nothing.
  if (Error error = self.context_->pool().try_to_run([out] { out->form(); })) {
    self.formation_->withdraw(error.kind(), error.message());
    return error;
  }
  const auto finish = [weak = std::weak_ptr(out)](NoticeKind how, TimePoint until) {
    if (auto communicator = weak.lock()) communicator->finish(how, until);
  };
  const auto leave = [weak = std::weak_ptr(out)](NoticeKind how) {
    if (auto communicator = weak.lock()) communicator->leave(how);
  };
  const auto end = [weak = std::weak_ptr(out)] {
    if (auto communicator = weak.lock()) communicator->devices_->end(/*aborts=*/true);
  };
  self.context_->add_leaver(out.get(), {finish, leave, end});
  return out;
}

void Communicator::form() {
  ProgressEngine& progress = context_->progress();
  Dispatcher& dispatcher = progress.dispatcher();
  const auto named = [&progress, &dispatcher, slot = slot_](uint64_t nonce) {
    progress.post([&dispatcher, slot, nonce] { dispatcher.set_nonce(slot, nonce); });
  };
  formation_->when_known([this](const ResolvedGroup& members) {
    own_.begin(*context_, options_, members, weak_from_this());
  });
  formation_->run(named, [&](const Result<ResolvedGroup>& outcome) {
    if (outcome.ok()) {
      own_.formed(outcome.value());
      progress.post([&dispatcher, slot = slot_, planner = planner_,
                     membership = outcome.value().membership,
                     costs = outcome.value().costs.constants] {
        dispatcher.form(slot, membership, [&] { planner->on_formed(membership.topology, costs); });
        planner->forget();  // also if an op was planned too late for form()
      });
      return;
    }
    planner_->forget();
    const Error first = failure();  // abort() may have come first
    formation_->announce_failure(first ? first : outcome.error());
    progress.post_to(slot_, [error = outcome.error()](GroupSlot& slot) {
      slot.fail(error, /*tell_others=*/false);
    });
  });
}

Result<ShrinkResult> Communicator::shrink(Milliseconds timeout, std::optional<TimePoint> limit) {
  const std::string about = "ringdist: shrink: group '" + name() + "': ";
  if (context_->forked()) return Error(ErrorKind::kAborted, about + "the process was forked");
  if (size() == 1 && !own_.admits())
    return Error(ErrorKind::kNotSupported, about + "it has one rank, and takes no newcomers");
  const auto make_next = [context = context_, of_ops = this->timeout()](
                             auto options, const auto& prospect, auto place) {
    options.timeout = of_ops;
    return create_next(context, std::move(options), prospect, std::move(place));
  };
  const TimePoint deadline = Clock::now() + timeout;
  auto out = own_.next(deadline, limit.value_or(deadline), make_next);
  if (!out.ok()) return out.error().prefixed(about);
  return out;
}

bool Communicator::run_on_slot(std::function<void(GroupSlot&)> body) {
  return context_->progress().call_on(slot_, std::move(body), Clock::now() + kTaskTime);
}

uint64_t Communicator::stop_and_report(const Error& cause) {
  auto first = std::make_shared<std::atomic<uint64_t>>(1);  // shared: the task may run late
  run_on_slot([cause, first](GroupSlot& slot) { *first = slot.stop_and_report(cause); });
  return *first;
}

Communicator::~Communicator() {
  if (context_->forked()) {
    (void)new std::shared_ptr(devices_);  // leaked: a device may be used only in its own process
    return;
  }
  try {
    drop();
  } catch (...) {  // out of memory: the other ranks find out by their deadlines
  }
}

void Communicator::drop() {
  context_->remove_leaver(this);
  own_.leave();
  formation_->cancel();
  hooks_->end(/*waits=*/false);
  // Dropped without close(): does not wait for ops in flight, but still notifies the other ranks.
  if (!closed_) {
    formation_->withdraw(ErrorKind::kPeerLost,
                         std::string(kClosedByPeer) + "its last reference was dropped");
    own_.disconnect(context_, formation_->nonce(), rank());
  }
  ProgressEngine& progress = context_->progress();
  progress.post_to(slot_, [](GroupSlot& slot) { slot.announce_leave(NoticeKind::kLeave); });
  progress.post([&dispatcher = progress.dispatcher(), slot = slot_] { dispatcher.remove(slot); });
  if (devices_->any())  // on the pool, because the GIL may be held here
    context_->pool().run([devices = devices_] { devices->end(/*aborts=*/true); });
}

Result<std::shared_ptr<Communicator>> Communicator::duplicate(
    const std::string& suffix, const std::shared_ptr<GroupService>& service) {
  auto options = options_.named(name() + suffix, timeout(), service);
  if (!service) options.config.nan_check = 0;  // its ops are none of the user's
  // Only duplicates of one suffix need an order. A failed attempt uses no number.
  std::lock_guard one_at_a_time(making_);
  uint64_t& number = duplicates_made_[suffix];
  auto formation =
      std::make_shared<DerivedBootstrap>(context_, options, formation_, suffix, number);
  auto made = create(context_, std::move(options), std::move(formation));
  if (!made.ok()) return made;
  ++number;
  const Error first = failure_->add(made.value());
  if (!first) return made;
  // The failure callback ran before the duplicate was added.
  made.value()->abort("the group it belongs to failed: " + first.message());
  return first;
}

Result<std::shared_ptr<Communicator>> Communicator::without(const std::vector<int>& excluded) {
  std::vector<int> survivors;
  for (int one = 0; one < size(); ++one)
    if (!std::ranges::count(excluded, one)) survivors.push_back(one);
  CommunicatorOptions options = options_.of(survivors, rank());
  options.name += " without " + format_ranks(excluded);
  options.timeout = timeout();
  std::lock_guard one_at_a_time(making_);
  uint64_t& number = duplicates_made_[options.name];
  auto made = create(context_, options,
                     std::make_shared<DerivedBootstrap>(context_, options, formation_, options.name,
                                                        number, survivors));
  if (made.ok()) ++number;
  return made;
}

Result<std::shared_ptr<Communicator>> Communicator::subgroup(const std::vector<int>& ranks,
                                                             std::shared_ptr<Store> store,
                                                             std::string name,
                                                             Milliseconds timeout) {
  auto make_runner = devices_->split(ranks);
  if (!make_runner.ok()) return make_runner.error();
  if (std::ranges::count(ranks, rank()) == 0) return std::shared_ptr<Communicator>();
  auto options = options_.of(ranks, rank()).named(std::move(name), timeout, nullptr);
  options.store = std::move(store);
  options.make_runner = std::move(make_runner.value());
  return create(context_, std::move(options));
}

Result<std::shared_ptr<Op>> Communicator::submit(OpRequest request, bool will_wait) {
  if (context_->forked())
    return Error(ErrorKind::kAborted,
                 "ringdist: this process was forked from one that had created group '" + name() +
                     "'; its connections belong to the parent");
  if (request.device_stream) return devices_->submit(std::move(request));
  if (const Error error = config().nan_check != 0 ? check_nan(request) : Error()) return error;
  return enqueue(std::move(request), will_wait);
}

Error Communicator::refusal_now() const {
  if (closed_) return {ErrorKind::kAborted, "ringdist: group '" + name() + "' has been destroyed"};
  if (const Error first = failure())
    return first.prefixed("ringdist: group '" + name() + "' has failed and cannot be used " +
                          "(destroy it and create another): ");
  return {};
}

Result<std::shared_ptr<Op>> Communicator::enqueue(OpRequest&& request, bool will_wait) {
  const TimePoint started = Clock::now();
  const ThreadUsage usage = measure_thread_usage(started);
  ProgressEngine& progress = context_->progress();
  // Taken before mutex_, as the lock order demands. It runs the op after mutex_ has been released.
  const auto turn = will_wait ? ProgressEngine::Guard(progress) : ProgressEngine::Guard();
  std::unique_lock lock(mutex_);
  if (Error error = refusal_now()) return error;
  std::shared_ptr<Op> op =
      std::make_shared<DeferredReleaseOp>(std::move(request), context_->pool());
  if (Error error = planner_->plan(op)) return error;
  if (size() == 1) op->request.codec_map.reset();  // nothing is sent, so nothing needs compression
  if (!op->request.envelope) op->number = next_number_;
  op->started = started;
  op->usage = usage;
  op->deadline = op->started + (op->request.timeout.count() > 0 ? op->request.timeout : timeout_);
  formation_->shorten(op->deadline);
  Dispatcher& dispatcher = progress.dispatcher();
  // Tasks that other threads have posted come first, perhaps an op with a lower number among them.
  // Tasks that are posted from here on wait for the progress lock.
  const bool enqueues = turn && !progress.has_tasks();
  if (!enqueues &&
      !progress.post([&dispatcher, slot = slot_, op] { dispatcher.enqueue(slot, op); }, !will_wait))
    return shut_down();
  if (!op->request.envelope) ++next_number_;  // last, so that an exception uses no number
  lock.unlock();                              // the outcome is reported without the mutex
  if (enqueues) dispatcher.enqueue(slot_, op);
  return op;
}

// The progress engine has formed the group before it runs a task posted after the outcome.
Error Communicator::await_members(TimePoint deadline) {
  formation_->shorten(deadline);
  const auto& outcome = formation_->outcome();
  if (outcome.wait_until(deadline + kTaskTime) != std::future_status::ready)
    return {ErrorKind::kTimeout, "ringdist: group '" + name() + "' still looks for its members"};
  if (!outcome.get().ok())
    return outcome.get().error().prefixed("ringdist: group '" + name() + "': ");
  return run_on_slot([](GroupSlot&) {}) ? Error() : shut_down();
}

std::unique_ptr<RunnerDelegate> Communicator::runner_group() {
  // Devices may call these at any time, also when this Communicator is gone.
  const auto of_us = [weak = weak_from_this()](OpRequest request) -> Result<std::shared_ptr<Op>> {
    const auto group = weak.lock();
    return group ? group->submit(std::move(request), /*will_wait=*/false) : departed();
  };
  ProgressEngine& progress = context_->progress();
  const auto await = [&progress](const Op& op) { progress.wait(op, TimePoint::max()); };
  const auto move = [&progress](const CpuSet& cpus) { progress.set_affinity(cpus); };
  const auto make = [weak = weak_from_this(), await](const std::string& suffix) -> Result<HostOps> {
    const auto group = weak.lock();
    if (!group) return departed();
    auto made = group->duplicate(suffix);
    if (!made.ok()) return made.error();
    return HostOps{[duplicate = std::move(made.value())](OpRequest request) {
                     return duplicate->submit(std::move(request), /*will_wait=*/false);
                   },
                   await};
  };
  return std::make_unique<DeviceGroup>(rank(), size(), HostOps{of_us, await}, make, move);
}

std::function<void(Error)> Communicator::when_ended(const std::shared_ptr<Op>& op) {
  return [context = std::weak_ptr(context_), slot = slot_, op](const Error& error) {
    const auto held = context.lock();
    if (!held) return;
    held->progress().post_to(slot, [op, error](GroupSlot& slot) {
      if (Group* group = slot.group()) group->ended_on_device(op, error);
    });
  };
}

void Communicator::fail(const Error& cause) {
  context_->progress().post_to(
      slot_, [cause](GroupSlot& slot) { slot.fail(cause, /*tell_others=*/true); });
}

void Communicator::abort(const std::string& why) {
  if (context_->forked()) return;
  for (const auto& duplicate : duplicates()) duplicate->abort(why);
  // Ranks that have found all peers do not read the store any more. This one must find them first.
  const TimePoint until = Clock::now() + Context::kFinishTime;
  formation_->shorten(until);
  fail(Error(ErrorKind::kAborted, why));
  // A device would start an op that is submitted before the progress engine has failed the group.
  // So this waits until the progress engine has run the task of fail(), unless this is its thread.
  if (!in_progress_loop()) (void)context_->progress().call([] {}, until);
  withdraw(until, ErrorKind::kAborted, why);
}

// On the pool, because a store may answer late or never.
void Communicator::withdraw(TimePoint until, ErrorKind kind, const std::string& why,
                            bool process_ends) {
  if (formation_->nonce() != 0 || size() == 1) return;
  auto said = std::make_shared<std::promise<void>>();
  auto done = said->get_future();
  context_->pool().run([formation = formation_, kind, why, process_ends, said = std::move(said)] {
    formation->withdraw(kind, std::string(kClosedByPeer) + why, process_ends);
    said->set_value();
  });
  (void)done.wait_until(until);
}

void Communicator::finish(NoticeKind how, TimePoint until) {
  hooks_->end(/*waits=*/true);
  // A rank that has found all others counts on this one, and is notified only if this one has found
  // it. If the group has failed and has a nonce, it was notified.
  const bool told = failure() && formation_->nonce() != 0;
  if (!context_->progress().stopped() && !told) formation_->outcome().wait_until(until);
  formation_->cancel(how);
  withdraw(std::max(until, Clock::now() + kWordTime), ErrorKind::kPeerLost,
           how == NoticeKind::kExit ? "its process exited" : "it destroyed the group",
           how == NoticeKind::kExit);
  wait_until_idle(std::min(until, Clock::now() + kLeaveTime));
}

void Communicator::close() {
  if (context_->forked()) return;
  if (devices_->any()) wait_until_idle(TimePoint::max());  // their ops may need the duplicates
  for (const auto& duplicate : duplicates()) duplicate->close();
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) return;
  }
  own_.leave();
  wait_until_idle(TimePoint::max());
  finish(NoticeKind::kLeave, Clock::now() + Context::kFinishTime);
  // Flushes before it leaves: other ranks compare calls before they receive the notice.
  if (!failure()) context_->progress().flush(Clock::now() + ProgressEngine::kFlushTime);
  leave(NoticeKind::kLeave);
  devices_->end(/*aborts=*/static_cast<bool>(failure()));  // while the group still exists
  log(LogLevel::kDebug,
      "group '" + name() + "': closed after op #" + std::to_string(sequence_number()));
  context_->remove_leaver(this);
  own_.disconnect(context_, formation_->nonce(), rank());
  ProgressEngine& progress = context_->progress();
  const auto task = [&dispatcher = progress.dispatcher(), slot = slot_] {
    dispatcher.remove(slot);
  };
  progress.call(task, Clock::now() + kTaskTime);
}

}  // namespace ringdist
