#include "engine/succession.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/closed_by_peer.h"
#include "base/describe.h"
#include "base/log.h"
#include "engine/formed_text.h"

namespace ringdist {
namespace {

// A store whose process has died may neither answer nor fail, as children that it had forked hold
// its sockets. One that was only held up is not missed: the group goes on with another.
constexpr Duration kStoreTime = Milliseconds(500);
constexpr Duration kAskAgain = Milliseconds(500);

std::vector<ContextId> members_of(const FoundGroup& found) {
  std::vector<ContextId> out;
  for (const GroupMember& member : found.membership.members) out.push_back(member.context);
  return out;
}

}  // namespace

bool Succession::can_have(const FoundGroup& found) {
  const auto members = members_of(found);
  return members.size() > 1 &&
         std::set<ContextId>(members.begin(), members.end()).size() == members.size();
}

Succession::Succession(Context& context, const CommunicatorOptions& options,
                       const FoundGroup& found, std::weak_ptr<GenerationGroup> first)
    : context_(context),
      options_(options),
      lineage_(found.membership.nonce),
      first_members_(members_of(found)),
      votes_(votes_at("")) {
  present_.found = found;
  present_.group = std::move(first);
  present_.begun = true;
  const int here = found.membership.topology.host_of[found.membership.rank];
  for (const ControlMember& process : found.processes) {
    const bool near = process.host == here;
    recipients_[process.context_id] = {process.context_id, near ? LinkKind::kLocal : LinkKind::kTcp,
                                       near ? process.unix_name : process.tcp_address};
  }
}

void Succession::enroll() {
  context_.assembly().enroll({lineage_, first_members_}, shared_from_this());
  if (options_.rank == 0) votes()->open(lineage_);
}

std::shared_ptr<StoreVotes> Succession::votes_at(const std::string& address) const {
  return std::make_shared<StoreVotes>(context_,
                                      [store = options_.store, home = options_.store_home,
                                       address]() -> Result<std::shared_ptr<Store>> {
                                        if (address.empty() && store) return store;
                                        if (address.empty() || !home)
                                          return Error(ErrorKind::kSystem,
                                                       "the group has no store");
                                        return home->open(address);
                                      });
}

std::shared_ptr<StoreVotes> Succession::votes() {
  std::lock_guard lock(mutex_);
  return votes_;
}

std::string Succession::offer_store() const {
  if (!options_.store_home) return "";
  const std::string own = context_.control().tcp_address();
  return options_.store_home->offer(own.substr(0, own.rfind(':')));
}

void Succession::leave(uint32_t generation) {
  std::optional<Notice> word;
  {
    std::lock_guard lock(mutex_);
    if (generation != made_) return;  // it has a successor here, or came to nothing
    const Membership& next = present_.found.membership;
    // The others count on this process, which will not make it.
    if (present_.number > generation)
      word = abort_notice(next.nonce, /*generation=*/0, next.rank, /*op=*/0,
                          Error(ErrorKind::kPeerLost, std::string(kClosedByPeer) +
                                                          "it destroyed the group instead of going "
                                                          "on in its next generation"));
  }
  context_.assembly().withdraw(lineage_);
  if (word) context_.control().flood(word->encode());
}

// ---- a caller's

Result<Shrunk> Succession::next(uint32_t after, TimePoint deadline, const MakeNext& make) {
  for (;;) {
    if (Error error = context_.assembly().begin(lineage_, after)) return error;
    std::unique_lock lock(mutex_);
    const TimePoint until = std::min(deadline, Clock::now() + kAskAgain);
    while (!over(after) && !may_make(after) &&
           changed_.wait_until(lock, until) != std::cv_status::timeout) {
    }
    if (Error error = over(after)) return error;
    if (may_make(after)) {
      const Generation next = present_;
      lock.unlock();
      if (auto out = make_of(next, after, make)) return *out;
    } else if (Clock::now() >= deadline) {
      lock.unlock();
      return no_agreement();
    }
  }
}

// Why there can be none any more.
Error Succession::over(uint32_t after) const {
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

// Nothing: the others decide on a further one already.
std::optional<Result<Shrunk>> Succession::make_of(const Generation& next, uint32_t after,
                                                  const MakeNext& make) {
  auto made = make(options_of(next), next.found, {shared_from_this(), next.number});
  if (!made.ok()) return made.error();
  std::lock_guard lock(mutex_);
  if (present_.number != next.number || present_.frozen) return std::nullopt;
  const Shrunk out = report(after);
  present_.group = made.value();
  made_ = present_.number;
  steps_.clear();
  return out;
}

Error Succession::no_agreement() {
  const std::string why = context_.assembly().describe(lineage_);
  return {ErrorKind::kTimeout, "no agreement on the next generation in time: " +
                                   (why.empty() ? "this process does not come to it" : why)};
}

CommunicatorOptions Succession::options_of(const Generation& generation) const {
  std::vector<int> ranks;  // of the first generation
  for (const GroupMember& member : generation.found.membership.members)
    ranks.push_back(rank_of(member.context, first_members_));
  CommunicatorOptions out = options_.of(ranks, options_.rank);
  out.name += " (generation " + std::to_string(generation.number) + ")";
  out.costs = generation.found.costs;
  return out;
}

Shrunk Succession::report(uint32_t after) const {
  check(!steps_.empty(), "a generation that nobody decided on");
  Shrunk out;
  out.generation = present_.number;
  const std::vector<ProcessId>* first = nullptr;
  for (const Step& step : steps_) {
    if (step.decision.generation <= after) continue;
    if (first == nullptr) {
      first = &step.before;
      if (step.store != store_) out.store = store_;
      out.first_unfinished = static_cast<uint64_t>(step.decision.first_unfinished);
    }
    for (const Lost& lost : step.decision.lost)
      out.lost.push_back({rank_of(step.before.at(lost.rank), *first),
                          lost.cause == Lost::Cause::kDied, step.where.at(lost.rank)});
  }
  for (const GroupMember& member : present_.found.membership.members)
    out.stayed.push_back(rank_of(member.context, *first));
  return out;
}

// ---- the lineage's

std::optional<Recipient> Succession::recipient(ProcessId process) {
  std::lock_guard lock(mutex_);
  const auto known = recipients_.find(process);
  return known == recipients_.end() ? std::nullopt : std::optional(known->second);
}

Standing Succession::freeze() {
  std::shared_ptr<GenerationGroup> group;
  {
    std::lock_guard lock(mutex_);
    if (present_.standing) return *present_.standing;
    present_.frozen = true;  // the generation stays the same meanwhile: this thread makes it
    group = present_.group.lock();
  }
  Standing out;
  out.first_unfinished = 1;
  if (group)
    out.first_unfinished = static_cast<int64_t>(group->freeze(
        {ErrorKind::kPeerLost,
         "members were lost, or want to be fewer: the others agree on the group's next generation; "
         "call torch_ringdist.shrink() to go on in it"}));
  // Not here may it end, as the last to hold its Context.
  context_.pool().run([group = std::move(group)] {});
  // The others must not take this thread for silent meanwhile.
  const std::chrono::duration<double> patience(context_.config().peer_timeout / 4);
  out.reaches_store =
      votes()->answers(std::min(kStoreTime, std::chrono::duration_cast<Duration>(patience)));
  if (!out.reaches_store) out.offers_store = offer_store();
  std::lock_guard lock(mutex_);
  out.store = store_;
  present_.standing = out;
  return out;
}

void Succession::read_vote(const GenerationId& generation, VoteRead then) {
  votes()->read(generation, std::move(then));
}

void Succession::cast_vote(const GenerationId& generation, const std::optional<Accepted>& before,
                           const Accepted& vote, VoteCast then) {
  votes()->cast(generation, before, vote, std::move(then));
}

void Succession::on_installed(const Decision& decision) {
  {
    std::lock_guard lock(mutex_);
    Step step{decision, members_of(present_.found), {}, store_};
    for (const GroupMember& member : present_.found.membership.members)
      step.where.push_back(member.where);
    log(LogLevel::kInfo, describe(step));
    steps_.push_back(std::move(step));
    Generation next;
    next.number = decision.generation;
    std::vector<int> stay;
    for (uint32_t rank = 0; rank < decision.stay; ++rank)
      stay.push_back(rank_of(decision.members[rank], steps_.back().before));
    next.found = present_.found.of(stay, present_.found.membership.rank);
    next.found.membership.nonce = decision.id().nonce;
    present_ = std::move(next);
    if (store_ != decision.store) votes_ = votes_at(decision.store);
    store_ = decision.store;
  }
  changed_.notify_all();
}

// "generation 1 of group 'g': ranks 0 1 3 of 4 go on; lost: rank 2 (pid 12 on host a) died"
std::string Succession::describe(const Step& step) const {
  std::vector<int> stay;
  for (uint32_t rank = 0; rank < step.decision.stay; ++rank)
    stay.push_back(rank_of(step.decision.members[rank], step.before));
  std::string out = "generation " + std::to_string(step.decision.generation) + " of group '" +
                    options_.name + "': " + format_ranks(stay) + " of " +
                    std::to_string(step.before.size()) + " go on";
  for (const Lost& lost : step.decision.lost)
    out += "; " + describe_rank(lost.rank, step.where.at(lost.rank)) +
           (lost.cause == Lost::Cause::kDied ? " died" : " was silent");
  return out;
}

void Succession::on_begun() {
  bool marks = false;
  uint64_t nonce = 0;
  {
    std::lock_guard lock(mutex_);
    present_.begun = true;
    marks = present_.found.membership.rank == 0;
    nonce = present_.found.membership.nonce;
  }
  if (marks) votes()->open(nonce);
  changed_.notify_all();
}

void Succession::on_excluded(const Decision& decision) {
  std::shared_ptr<GenerationGroup> group;
  {
    std::lock_guard lock(mutex_);
    excluded_ = decision.generation;
    group = present_.group.lock();
  }
  if (group)
    (void)group->freeze({ErrorKind::kPeerLost,
                         "the others have excluded this process in "
                         "generation " +
                             std::to_string(decision.generation)});
  context_.pool().run([group = std::move(group)] {});
  changed_.notify_all();
}

}  // namespace ringdist
