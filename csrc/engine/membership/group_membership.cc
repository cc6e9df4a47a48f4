#include "engine/membership/group_membership.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "base/describe.h"
#include "base/log.h"
#include "control/control_history.h"
#include "engine/context/task_pool.h"
#include "rendezvous/store.h"

namespace ringdist {
namespace {

// A store may neither answer nor fail after its process died, as forked children hold its sockets.
// A store that was only slow is no loss: the group goes on with another one.
constexpr Duration kStoreTime = Milliseconds(500);
constexpr Duration kAskAgain = Milliseconds(500);
constexpr Duration kMakeTime = std::chrono::seconds(10);  // for a store to answer on a busy machine

// Encodes a newcomer's info. Members only check its addresses and the hash of its options, and
// messages of the consensus have little room.
std::string encode_short(RankInfo entry) {
  entry.transports.clear();
  entry.options.clear();
  entry.costs = {};
  const auto bytes = entry.encode();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

bool GroupMembership::can_have(const ResolvedGroup& found) {
  const auto members = found.contexts();
  return std::set<ContextId>(members.begin(), members.end()).size() == members.size();
}

GroupMembership::GroupMembership(Context& context, const CommunicatorOptions& options,
                                 const ResolvedGroup& found,
                                 std::weak_ptr<GenerationDelegate> first)
    : context_(context),
      options_(options),
      group_id_(found.membership.nonce),
      first_members_(found.contexts()),
      store_(context, options),
      join_acceptor_(std::make_shared<JoinAcceptor>(context, options, group_id_, book_)) {
  present_.found = found;
  present_.group = std::move(first);
  present_.begun = true;
  book_->add(found);
}

GroupMembership::GroupMembership(Context& context, const CommunicatorOptions& options,
                                 const GroupAdvertisement& advertisement, const RankInfo& entry)
    : context_(context),
      options_(options),
      group_id_(advertisement.group_id),
      entry_(encode_short(entry)),
      store_(context, options),
      join_acceptor_(std::make_shared<JoinAcceptor>(context, options, group_id_, book_)),
      renumbered_(true) {
  present_.found.costs = advertisement.first.costs;
  (void)join_acceptor_->admit(advertisement.job, advertisement.note, advertisement.most,
                              advertisement.timeout);
  book_->set_own(entry.tcp_address);
  update_members(advertisement);
}

void GroupMembership::register_group() {
  context_.assembly().register_group({group_id_, first_members_}, shared_from_this());
  if (options_.rank == 0 && first_members_.size() > 1) store_.votes().open(group_id_);
}

void GroupMembership::leave(uint32_t generation) {
  bool is_member = false;
  std::optional<Notice> word;
  {
    std::lock_guard lock(mutex_);
    if (generation != made_) return;  // a later group exists here, or the group came to nothing
    is_member = !first_members_.empty() || admitted_by_;
    left_ = true;
    release();
    const GroupDescriptor& next = present_.found.membership;
    // The others count on this process, which will not create the group.
    if (present_.number > generation)
      word = abort_notice(next.nonce, /*generation=*/0, next.rank, /*op=*/0,
                          Error(ErrorKind::kPeerLost, std::string(kClosedByPeer) +
                                                          "it destroyed the group instead of going "
                                                          "on in its next generation"));
  }
  context_.assembly().unregister_group(group_id_, /*for_good=*/is_member);
  if (word) context_.control().flood(word->encode());
}

// ---- for callers

Result<ShrinkResult> GroupMembership::next(uint32_t after, TimePoint deadline, TimePoint limit,
                                           const MakeGroup& make) {
  for (;;) {
    if (Error error = context_.assembly().begin(group_id_, after)) return error;
    std::unique_lock lock(mutex_);
    const TimePoint until = std::min(deadline, Clock::now() + kAskAgain);
    changed_.wait_until(lock, until, [&] { return over(after) || may_make(after); });
    if (Error error = over(after)) return error;
    if (may_make(after)) {
      lock.unlock();
      if (auto out = make_present(after, limit, make)) return *out;
    } else if (Clock::now() >= deadline) {
      lock.unlock();
      return no_agreement(after);
    }
  }
}

std::optional<Result<ShrinkResult>> GroupMembership::await_admission(TimePoint until,
                                                                     const MakeGroup& make) {
  if (Error error = context_.assembly().begin(group_id_, 0)) return error;
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, until, [&] { return over(0) || may_make(0); });
  if (Error error = over(0)) return error;
  if (!may_make(0)) return std::nullopt;
  lock.unlock();
  return make_present(0, Clock::now() + kMakeTime, make);
}

// Returns why no later generation is possible.
Error GroupMembership::over(uint32_t after) const {
  if (excluded_)
    return {ErrorKind::kPeerLost,
            "excluded in generation " + std::to_string(*excluded_) +
                ": the others go on without this process, which they did not hear for too long or "
                "which was cut off; it can come back only as a new one"};
  if (made_ > after)
    return {ErrorKind::kInvalidArgument,
            "it was shrunk before, to generation " + std::to_string(made_) + ": shrink that one"};
  return {};
}

std::optional<Result<ShrinkResult>> GroupMembership::make_present(uint32_t after, TimePoint limit,
                                                                  const MakeGroup& make) {
  const Generation next = [this] {
    std::lock_guard lock(mutex_);
    return present_;
  }();
  const TimePoint until = std::min(limit, Clock::now() + kMakeTime);
  constexpr auto kWhy = "the store does not answer";
  const auto call = [self = shared_from_this(), next, make, until]() -> Result<Made> {
    auto options = self->options_of(next);
    if (!options.ok()) return options.error();
    auto out = make(std::move(options.value()),
                    {next.found, next.needs_rendezvous, next.survivor_count}, {self, next.number});
    if (!out.ok() || !next.needs_rendezvous || Clock::now() < until) return out;
    // A further generation follows. A group that has failed ends without a notice that it leaves.
    (void)out.value().generation->stop_and_report({ErrorKind::kTimeout, kWhy});
    return Error(ErrorKind::kTimeout, kWhy);
  };
  auto made = next.needs_rendezvous ? context_.pool().call_until<Made>(until, call, kWhy) : call();
  if (!made.ok()) return cannot_make(next, made.error());
  std::unique_lock lock(mutex_);
  if (present_.number != next.number || present_.frozen) {
    lock.unlock();
    (void)made.value().generation->stop_and_report(
        {ErrorKind::kAborted, "the others decide on a further generation"});
    return std::nullopt;
  }
  ShrinkResult out = report(after);
  out.group = made.value().group;
  out.id = format_id(present_.found.membership.nonce);
  present_.group = made.value().generation;
  made_ = present_.number;
  steps_.clear();
  return out;
}

ShrinkResult GroupMembership::report(uint32_t after) const {
  const auto members = present_.found.contexts();
  if (!admitted_by_ || made_ > 0) return steps_.report(after, members, store_.address());
  ShrinkResult out;  // the result for a newcomer
  out.store = store_.address();
  out.generation = present_.number;
  const std::vector<ProcessId> were(admitted_by_->members.begin(),
                                    admitted_by_->members.begin() + admitted_by_->survivor_count);
  for (size_t rank = 0; rank < members.size(); ++rank)
    if (rank_of(members[rank], were) < 0) out.joined.push_back(static_cast<int>(rank));
  return out;
}

// If the members cannot meet because the store does not work, all of them move to another store.
std::optional<Result<ShrinkResult>> GroupMembership::cannot_make(const Generation& next,
                                                                 Error error) {
  if (!next.needs_rendezvous) return error;
  {
    std::lock_guard lock(mutex_);
    unusable_ = next.number;
    unusable_because_ = std::move(error);
  }
  if (Error none = context_.assembly().begin(group_id_, next.number)) return none;
  return std::nullopt;
}

// A generation without a usable store is the reason even if a further one is decided too late.
Error GroupMembership::no_agreement(uint32_t after) {
  std::string text = context_.assembly().describe(group_id_);
  if (text.empty()) text = "this process does not come to it";
  text.insert(0, "no agreement on the next generation in time: ");
  std::lock_guard lock(mutex_);
  if (unusable_ <= after) return {ErrorKind::kTimeout, text};
  return unusable_because_.suffixed(unusable_ == present_.number ? "" : "; then " + text);
}

Result<CommunicatorOptions> GroupMembership::options_of(const Generation& generation) {
  const GroupDescriptor& membership = generation.found.membership;
  CommunicatorOptions out = options_;
  std::vector<int> ranks;  // in the first generation
  for (const auto& one : membership.members) ranks.push_back(rank_of(one.context, first_members_));
  std::unique_lock lock(mutex_);
  if (renumbered_) {
    out.rank = membership.rank;
    out.size = membership.size();
    out.members.resize(membership.members.size());
    std::iota(out.members.begin(), out.members.end(), 0);
  } else {
    out = options_.of(ranks, options_.rank);
  }
  lock.unlock();
  out.name += " (generation " + std::to_string(generation.number) + ")";
  out.costs = generation.found.costs;
  if (!generation.needs_rendezvous) return out;
  auto whole = store_.get()->get();
  if (!whole.ok()) return whole.error();
  const std::string prefix = "ringdist/generation/" + format_id(membership.nonce) + "/";
  out.store = std::make_shared<PrefixStore>(whole.value(), prefix);
  return out;
}

void GroupMembership::formed(uint32_t generation, const ResolvedGroup& found) {
  book_->add(found);
  std::lock_guard lock(mutex_);
  if (present_.number != generation) return;
  present_.found = found;
  present_.formed = true;
  release();
  receive();
}

bool GroupMembership::defer(std::function<void()> task) {
  std::lock_guard lock(mutex_);
  if (made_ == 0 || present_.formed || left_) return false;
  deferred_.push_back(std::move(task));
  return true;
}

void GroupMembership::release() {
  for (auto& task : std::exchange(deferred_, {})) context_.pool().run(std::move(task));
}

void GroupMembership::receive() {
  if (present_.begun && present_.formed)
    join_acceptor_->present(present_.number, present_.found, store_.get());
}

void GroupMembership::update_members(const GroupAdvertisement& advertisement) {
  for (const GroupAdvertisement::Member& one : advertisement.members)
    if (!book_->find(one.process))
      book_->add(one, !context_.prove_same_host(one.process, one.unix_name));
}

JoinAnswer GroupMembership::on_join_request(const Newcomer& newcomer, const MessageOrigin& from,
                                            uint64_t number) {
  std::lock_guard lock(mutex_);
  if (rank_of(newcomer.process, present_.found.contexts()) >= 0) return {};
  return join_acceptor_->on_join_request(newcomer, from, number);
}

bool GroupMembership::on_vouched(ProcessId newcomer, ProcessId member) {
  std::lock_guard lock(mutex_);
  return join_acceptor_->on_vouched(newcomer, member, present_.found.contexts().size()) &&
         present_.formed && present_.begun && !present_.frozen && made_ == present_.number;
}

// ---- GroupConsensusDelegate

PromiseInfo GroupMembership::stop_and_report() {
  std::shared_ptr<GenerationDelegate> group;
  {
    std::lock_guard lock(mutex_);
    if (present_.info) return *present_.info;
    present_.frozen = true;  // only this thread changes the generation, so it stays the same
    group = present_.group.lock();
  }
  PromiseInfo out;
  out.first_unfinished = 1;
  if (group)
    out.first_unfinished = static_cast<int64_t>(group->stop_and_report(
        {ErrorKind::kPeerLost,
         "members were lost, or newcomers wait: the others agree on the group's next generation; "
         "call torch_ringdist.shrink() to go on in it"}));
  // The pool holds the last reference: the group's end may end the Context, and so this thread.
  context_.pool().run([group = std::move(group)] {});
  // Limited so that the others do not take this thread for silent meanwhile.
  const std::chrono::duration<double> limit(context_.config().peer_timeout / 4);
  out.reaches_store =
      store_.votes().answers(std::min(kStoreTime, std::chrono::duration_cast<Duration>(limit)));
  if (!out.reaches_store) out.offers_store = store_.offer();
  out.newcomers = join_acceptor_->waiting();
  out.most = join_acceptor_->most();
  std::lock_guard lock(mutex_);
  out.store = store_.address();
  out.formed = present_.formed;
  present_.info = out;
  return out;
}

void GroupMembership::read_vote(const GenerationId& generation, VoteRead then) {
  store_.votes().read(generation, std::move(then));
}

void GroupMembership::cast_vote(const GenerationId& generation,
                                const std::optional<Accepted>& before, const Accepted& vote,
                                VoteCast then) {
  store_.votes().cast(generation, before, vote, std::move(then));
}

void GroupMembership::on_installed(const Decision& decision) {
  join_acceptor_->admit_members(decision);
  {
    std::lock_guard lock(mutex_);
    if (present_.number > 0 && !present_.formed)  // its newcomers may have failed to join
      for (const LostMember& one : decision.lost)
        if (one.rank >= present_.survivor_count)
          join_acceptor_->fail(present_.found.contexts()[one.rank]);
    if (first_members_.empty() && !admitted_by_)
      admitted_by_ = decision;
    else
      add_step(decision);
    renumbered_ |= !decision.newcomers.empty();
    present_ = made_by(decision);
    store_.move_to(decision.store);
  }
  changed_.notify_all();
}

void GroupMembership::add_step(const Decision& decision) {
  GenerationHistory::Change step{decision, present_.found.contexts(), {}, store_.address()};
  for (const ProcessId process : step.before) step.where.push_back(book_->where(process));
  log(LogLevel::kInfo, step.describe(options_.name));
  steps_.add(std::move(step));
}

GroupMembership::Generation GroupMembership::made_by(const Decision& decision) const {
  Generation out;
  out.number = decision.generation;
  out.needs_rendezvous = decision.needs_rendezvous;
  out.survivor_count = static_cast<int>(decision.survivor_count);
  out.formed = !decision.needs_rendezvous;
  const ResolvedGroup& before = present_.found;
  if (decision.needs_rendezvous) {
    out.found.costs = before.costs;
    out.found.membership.rank = decision.rank_of(context_.id());
    for (const ProcessId process : decision.members)
      out.found.membership.members.push_back({process, nullptr, book_->where(process)});
  } else {
    std::vector<int> survivors;
    for (const auto one : decision.members) survivors.push_back(rank_of(one, before.contexts()));
    out.found = before.of(survivors, before.membership.rank);
  }
  out.found.membership.nonce = decision.id().nonce;
  return out;
}

void GroupMembership::on_begun() {
  GroupDescriptor membership;
  {
    std::lock_guard lock(mutex_);
    present_.begun = true;
    membership = present_.found.membership;
    receive();
  }
  if (membership.rank == 0) store_.votes().open(membership.nonce);
  changed_.notify_all();
}

void GroupMembership::on_excluded(const Decision& decision) {
  std::shared_ptr<GenerationDelegate> group;
  {
    std::lock_guard lock(mutex_);
    excluded_ = decision.generation;
    group = present_.group.lock();
  }
  const std::string number = std::to_string(decision.generation);
  if (group)
    (void)group->stop_and_report(
        {ErrorKind::kPeerLost, "the others have excluded this process in generation " + number});
  context_.pool().run([group = std::move(group)] {});
  changed_.notify_all();
}

}  // namespace ringdist
