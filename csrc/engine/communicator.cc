#include "engine/communicator.h"

#include <algorithm>

#include "base/check.h"
#include "base/closed_by_peer.h"
#include "base/log.h"
#include "base/thrown.h"
#include "engine/lane/driver.h"
#include "engine/prefixed_store.h"
#include "os/random.h"
#include "rendezvous/decline.h"

namespace ringdist {
namespace {

constexpr auto kTaskTime = std::chrono::seconds(10);
constexpr auto kTellTime = std::chrono::seconds(2);
constexpr Duration kLeaveTime = std::chrono::seconds(1);

// Freeing a tensor may need the GIL, which a lane never takes. So where a lane is the last to hold
// an op - nobody waits for it, or it has failed and its sends drain - the pool lets it go.
std::shared_ptr<Op> make_op(OpRequest request, TaskPool& pool) {
  return {new Op(std::move(request)), [&pool](Op* op) {
            std::shared_ptr<Op> last(op);  // a task that never runs frees it, too
            if (!drives_a_lane()) return;
            try {
              pool.run([last = std::move(last)] {});  // the pool lives: its Context has the lane
            } catch (...) {                           // no thread is to be had: it is freed here
            }
          }};
}

// What it throws ends its group, and the op with it.
void enqueue(Executor& executor, Group& group, const std::shared_ptr<Op>& op) {
  try {
    group.enqueue(op);
  } catch (...) {
    const Error error = thrown_error();
    group.fail(error, /*tell_others=*/true);
    if (!op->finished()) executor.finish_op(op, error);
  }
}

}  // namespace

Communicator::Communicator(std::shared_ptr<Context> context, CommunicatorOptions options)
    : context_(std::move(context)),
      options_(std::move(options)),
      rendezvous_(options_.store, options_.rank, options_.members),
      patience_(Clock::now() + options_.timeout),
      planner_({options_.rank, options_.size, options_.config.algorithm,
                options_.config.deterministic == "layout", options_.config.segment_bytes}),
      timeout_(options_.timeout) {}

int64_t Communicator::early_window(const Config& config) {
  return EarlyCredit::kSegments * config.segment_bytes;
}

Result<std::shared_ptr<Communicator>> Communicator::create(std::shared_ptr<Context> context,
                                                           CommunicatorOptions options) {
  std::shared_ptr<Communicator> out(new Communicator(std::move(context), std::move(options)));
  Communicator& self = *out;
  GroupConfig config;
  config.rank = self.rank();
  config.size = self.size();
  config.name = self.name();
  config.warn_after = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(self.options_.config.warn_after));
  config.early_window = early_window(self.options_.config);
  config.on_failed = [failure = self.failure_, hooks = std::weak_ptr(self.hooks_),
                      context = std::weak_ptr(self.context_)](const Error& error) {
    std::lock_guard lock(failure->mutex);
    failure->first = error;
    const auto alive = context.lock();
    if (!alive) return;
    // Not here: hooks may need the GIL, an abort may write to the store, and this is a lane.
    if (auto held = hooks.lock(); held && !held->failed.empty())
      alive->pool().run([held = std::move(held)] { held->call_failed(); });
    for (const auto& sibling : failure->siblings)
      alive->pool().run([sibling, why = error.message()] {
        if (auto one = sibling.lock()) one->abort("the group it belongs to failed: " + why);
      });
  };
  Lane& lane = self.context_->lane();
  self.group_ = std::make_shared<Group>(lane.executor(), std::move(config));
  if (self.size() > 1)
    if (Error error = self.publish()) return error;
  lane.post([&lane, group = self.group_] { lane.executor().add_group(group); });
  // Now, not with the first op: a send and its receive must find each other though the other ranks
  // of the group call nothing.
  self.context_->pool().run([out] {
    out->set_up();
    out->set_up_promise_.set_value();
  });
  const auto finish = [weak = std::weak_ptr(out)](NoticeKind how, TimePoint until) {
    if (auto communicator = weak.lock()) communicator->finish(how, until);
  };
  const auto leave = [weak = std::weak_ptr(out)](NoticeKind how) {
    if (auto communicator = weak.lock()) communicator->leave(how);
  };
  self.context_->add_leaver(out.get(), {finish, leave});
  return out;
}

Communicator::~Communicator() {
  if (context_->forked()) return;
  context_->remove_leaver(this);
  patience_.cancelled = true;
  hooks_->end(/*waits=*/false);
  Lane& lane = context_->lane();
  // Dropped without close(): no wait for what is in flight, but no silent end either.
  if (!closed_) {
    withdraw(ErrorKind::kPeerLost, std::string(kClosedByPeer) + "its last reference was dropped");
    if (nonce_ != 0) context_->control().disconnect_group(nonce_, rank());
  }
  lane.post([&lane, group = group_] {
    group->announce_leave(NoticeKind::kLeave);
    lane.executor().remove_group(group);
  });
}

Result<std::shared_ptr<Communicator>> Communicator::sibling(const std::string& suffix) {
  CommunicatorOptions options = options_;
  options.name += suffix;
  options.timeout = timeout();
  // Keys of its own: ranks may make siblings in any order, those of the same suffix alike.
  if (options.store) options.store = std::make_shared<PrefixedStore>(options.store, suffix);
  auto made = create(context_, std::move(options));
  if (!made.ok()) return made;
  Error first;
  {
    std::lock_guard lock(failure_->mutex);
    failure_->siblings.push_back(made.value());
    first = failure_->first;
  }
  if (!first) return made;
  // on_failed has been here before.
  made.value()->abort("the group it belongs to failed: " + first.message());
  return first;
}

Result<std::shared_ptr<Communicator>> Communicator::subgroup(const std::vector<int>& ranks,
                                                             std::shared_ptr<Store> store,
                                                             std::string name,
                                                             Milliseconds timeout) {
  CommunicatorOptions options = options_;
  options.rank = static_cast<int>(std::ranges::find(ranks, rank()) - ranks.begin());
  options.size = static_cast<int>(ranks.size());
  check(options.rank < options.size, "a subgroup without this rank");
  options.members.clear();
  for (const int rank : ranks) options.members.push_back(options_.members.at(rank));
  options.name = std::move(name);
  options.timeout = timeout;
  options.store = std::move(store);
  return create(context_, std::move(options));
}

std::vector<std::shared_ptr<Communicator>> Communicator::siblings() const {
  std::vector<std::shared_ptr<Communicator>> out;
  std::lock_guard lock(failure_->mutex);
  for (const auto& sibling : failure_->siblings)
    if (auto one = sibling.lock()) out.push_back(std::move(one));
  return out;
}

Error Communicator::publish() {
  auto entry = context_->entry();
  if (!entry.ok()) {
    (void)decline(*options_.store, rank(), members(), entry.error());
    return entry.error();
  }
  entry.value().size = size();
  entry.value().options_hash = options_.config.options_hash();
  entry.value().options = options_.config.options_text();
  entry.value().nonce = rank() == 0 ? random_id() : 0;
  return rendezvous_.publish(entry.value());
}

Result<std::shared_ptr<Op>> Communicator::submit(OpRequest request, bool will_wait) {
  if (context_->forked())
    return Error(ErrorKind::kAborted,
                 "ringdist: this process was forked from one that had created group '" + name() +
                     "'; its connections belong to the parent");
  auto planned = planner_.plan(request);
  if (!planned.ok()) return planned.error();
  if (size() == 1) request.blocks.reset();  // nothing travels, so nothing need be lost
  auto op = make_op(std::move(request), context_->pool());
  op->plan = planned.value();
  std::lock_guard lock(mutex_);
  if (closed_)
    return Error(ErrorKind::kAborted, "ringdist: group '" + name() + "' has been destroyed");
  if (context_->lane().stopped())
    return Error(ErrorKind::kAborted, "ringdist: this process has shut ringdist down");
  if (const Error first = failure())
    return first.prefixed("ringdist: group '" + name() + "' has failed and cannot be used " +
                          "(destroy it and create another): ");
  if (!op->request.endpoint) {
    op->schedule = planner_.schedule(op->request, op->plan);
    op->number = next_number_.fetch_add(1);
  }
  op->fingerprint = fingerprint_of(op->request, op->plan);
  op->started = Clock::now();
  op->deadline = op->started + (op->request.timeout.count() > 0 ? op->request.timeout : timeout_);
  patience_.shorten(op->deadline);
  Executor& executor = context_->lane().executor();
  context_->lane().post([&executor, group = group_, op] { enqueue(executor, *group, op); },
                        !will_wait);
  return op;
}

bool Communicator::wait(const Op& op, std::optional<Milliseconds> timeout) {
  // The op itself ends by its deadline; the margin is for the lane to say why.
  const TimePoint deadline = timeout ? Clock::now() + *timeout : TimePoint::max();
  return context_->lane().wait(op, deadline);
}

void Communicator::handed_over(uint64_t number) {
  if (context_->forked()) return;
  context_->lane().post([group = group_, number] { group->handed_over(number); });
}

Error Communicator::failure() const {
  std::lock_guard lock(failure_->mutex);
  return failure_->first;
}

void Communicator::tell_failure() {
  if (!hooks_->failed.empty() && failure()) hooks_->call_failed();
}

void Communicator::set_timeout(Milliseconds timeout) {
  for (const auto& sibling : siblings()) sibling->set_timeout(timeout);
  std::lock_guard lock(mutex_);
  timeout_ = timeout;
}

Milliseconds Communicator::timeout() const {
  std::lock_guard lock(mutex_);
  return timeout_;
}

void Communicator::abort(const std::string& why) {
  if (context_->forked()) return;
  for (const auto& sibling : siblings()) sibling->abort(why);
  // Ranks that have found their peers no longer look into the store: ours must be found to be told.
  patience_.shorten(Clock::now() + kTellTime);
  withdraw(ErrorKind::kAborted, std::string(kClosedByPeer) + why);
  const Error cause(ErrorKind::kAborted, why);
  context_->lane().post([group = group_, cause] { group->fail(cause, /*tell_others=*/true); });
}

// Ranks that have called an op look for all others in the store, until their control planes meet.
void Communicator::withdraw(ErrorKind kind, const std::string& why, bool process_ends) {
  if (nonce_ == 0 && size() > 1) (void)rendezvous_.withdraw(kind, why, process_ends);
}

void Communicator::finish(NoticeKind how, TimePoint until) {
  hooks_->end(/*waits=*/true);
  // Who has found everybody counts on us, and hears of our end only if we have found them, too.
  if (!context_->lane().stopped()) set_up_ended_.wait_until(until);
  patience_.cancelled = true;
  const bool exits = how == NoticeKind::kExit;
  withdraw(ErrorKind::kPeerLost,
           std::string(kClosedByPeer) + (exits ? "its process exited" : "it destroyed the group"),
           exits);
  wait_until_idle(std::min(until, Clock::now() + kLeaveTime));
}

void Communicator::leave(NoticeKind how) {
  Lane& lane = context_->lane();
  lane.call([group = group_, how] { group->announce_leave(how); }, Clock::now() + kTaskTime);
}

void Communicator::wait_until_idle(TimePoint deadline) {
  (void)context_->lane().call_until([group = group_] { return group->idle(); }, deadline);
}

void Communicator::close() {
  if (context_->forked()) return;
  for (const auto& sibling : siblings()) sibling->close();
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) return;
  }
  Lane& lane = context_->lane();
  wait_until_idle(TimePoint::max());
  finish(NoticeKind::kLeave, Clock::now() + kTellTime);
  // First what was sent, then that nothing follows: others compare calls before they are told.
  if (!failure()) lane.flush(Clock::now() + Lane::kFlushTime);
  leave(NoticeKind::kLeave);
  log(LogLevel::kDebug,
      "group '" + name() + "': closed after op #" + std::to_string(sequence_number()));
  context_->remove_leaver(this);
  if (nonce_ != 0) context_->control().disconnect_group(nonce_, rank());
  lane.call([&lane, group = group_] { lane.executor().remove_group(group); },
            Clock::now() + kTaskTime);
}

}  // namespace ringdist
