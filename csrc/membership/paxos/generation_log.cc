#include "membership/paxos/generation_log.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ringdist {
namespace {

// Limit of deferred messages. Further ones are dropped, because their senders repeat them.
constexpr size_t kMaxUnexpected = 4096;

}  // namespace

GenerationLog::GenerationLog(ProcessId self, const GenerationId& generation,
                             std::vector<ProcessId> members, const PaxosTimeouts& timeouts,
                             GenerationLogDelegate& delegate)
    : self_(self),
      timeouts_(timeouts),
      delegate_(delegate),
      generation_(generation),
      members_(std::move(members)) {
  make_agreement();
}

std::unique_ptr<GenerationLog> GenerationLog::admitted(ProcessId self,
                                                       const ConsensusMessage& message,
                                                       const PaxosTimeouts& timeouts,
                                                       GenerationLogDelegate& delegate,
                                                       TimePoint now) {
  if (!message.made_by || message.made_by->rank_of(self) < 0) return nullptr;
  const Decision& made_by = *message.made_by;
  auto out =
      std::make_unique<GenerationLog>(self, made_by.id(), made_by.members, timeouts, delegate);
  // The sender has installed this generation, so it is the decision of the one before.
  out->past_.push_back({{made_by.generation - 1, made_by.after}, made_by.proposed, made_by});
  out->enter(made_by, now);
  return out;
}

void GenerationLog::enter(const Decision& made_by, TimePoint now) {
  generation_ = made_by.id();
  made_by_ = made_by;
  members_ = made_by.members;
  state_ = State::kInstalled;
  installed_.reset();
  installed_at_ = now;
  resend_at_ = now + timeouts_.resend;
  make_agreement();
}

void GenerationLog::make_agreement() {
  // This private base is not accessible to make_unique().
  PaxosDelegate& delegate = *this;
  paxos_ = std::make_unique<PaxosInstance>(Voters{generation_, members_}, rank_of(self_), timeouts_,
                                           delegate);
}

const GenerationLog::PastGeneration* GenerationLog::find(const GenerationId& generation) const {
  const auto found = std::find_if(past_.begin(), past_.end(), [&](const PastGeneration& one) {
    return one.generation == generation;
  });
  return found == past_.end() ? nullptr : &*found;
}

// ---- Input

void GenerationLog::begin(TimePoint now) {
  if (state_ == State::kExcluded) return;
  paxos_->begin(now);
  apply_decision(now);
}

void GenerationLog::on_message(ProcessId from, const ConsensusMessage& message, TimePoint now) {
  if (const PastGeneration* past = find(message.generation)) return on_past(from, *past, message);
  if (state_ == State::kExcluded) return;
  if (message.generation == generation_) return on_own(from, message, now);
  // It belongs to a decision that was replaced by another one.
  if (message.generation.number <= generation_.number) return;
  // The sender is in a later generation, so it has the decision that this process has missed.
  ConsensusMessage ask;
  ask.kind = ConsensusMessageKind::kAsk;
  ask.generation = generation_;
  ask.ballot = paxos_->promised();
  delegate_.send(from, ask);
}

void GenerationLog::on_own(ProcessId from, const ConsensusMessage& message, TimePoint now) {
  const int rank = rank_of(from);
  if (message.decision && !message.decision->comes_from(members_)) return;
  if (message.accepted && !message.accepted->value.comes_from(members_)) return;
  // A decision may also come from a process that is a member only of the decided generation.
  if (message.kind == ConsensusMessageKind::kDecided) {
    if (rank < 0 && message.decision->rank_of(from) < 0) return;
    paxos_->on_decided(message.ballot, *message.decision);
    return apply_decision(now);
  }
  if (rank < 0 || from == self_ || std::ranges::count(given_up_, from)) return;
  if (is_ahead_of_its_dead(message)) {
    // Senders repeat their messages, and the latest one of a kind has all that the others had.
    std::erase_if(deferred_, [&](const auto& one) {
      return one.first == from && one.second.kind == message.kind;
    });
    if (deferred_.size() < kMaxUnexpected) deferred_.emplace_back(from, message);
    return;
  }
  if (message.kind == ConsensusMessageKind::kInstalled) return on_installed(rank);
  if (message.kind == ConsensusMessageKind::kBegun) return on_begun_told(now);
  paxos_->on_message(rank, message, now);
  apply_decision(now);
}

// Messages of the dead process may still be unread here; one of them may report its decision. A
// vote for `message` before they are read would ignore that decision.
bool GenerationLog::is_ahead_of_its_dead(const ConsensusMessage& message) {
  return std::ranges::any_of(message.dead, [this](int32_t rank) {
    if (rank < 0 || rank >= static_cast<int32_t>(members_.size())) return false;
    const ProcessId process = members_[static_cast<size_t>(rank)];
    return process != self_ && delegate_.is_near(process) && !std::ranges::count(dead_, process);
  });
}

void GenerationLog::on_past(ProcessId from, const PastGeneration& past,
                            const ConsensusMessage& message) {
  const bool asks = message.kind == ConsensusMessageKind::kPrepare ||
                    message.kind == ConsensusMessageKind::kAccept ||
                    message.kind == ConsensusMessageKind::kWait ||
                    message.kind == ConsensusMessageKind::kAsk ||
                    message.kind == ConsensusMessageKind::kInstalled;
  if (!asks) return;
  ConsensusMessage out;
  out.kind = ConsensusMessageKind::kDecided;
  out.generation = past.generation;
  // The decision holds as of the request's ballot: this process lives, and has installed the
  // decision or was excluded by it.
  out.ballot = std::max(past.ballot, message.ballot);
  out.decision = past.decision;
  delegate_.send(from, out);
}

void GenerationLog::on_death(ProcessId process, TimePoint now) {
  if (std::ranges::count(dead_, process)) return;
  dead_.push_back(process);
  const int rank = rank_of(process);
  if (state_ == State::kExcluded || rank < 0) return;
  paxos_->on_death(rank, now);
  begin_if_it_cannot(now);
  apply_decision(now);
  for (auto& [from, message] : std::exchange(deferred_, {})) on_message(from, message, now);
}

void GenerationLog::give_up(ProcessId process, TimePoint now) {
  if (std::ranges::count(given_up_, process)) return;
  given_up_.push_back(process);
  const int rank = rank_of(process);
  if (state_ == State::kExcluded || rank < 0) return;
  paxos_->give_up(rank, now);
  begin_if_it_cannot(now);
  apply_decision(now);
}

// A generation that has not begun never will if it lacks one of its members, because that member
// may have left before it installed the generation.
void GenerationLog::begin_if_it_cannot(TimePoint now) {
  if (state_ == State::kInstalled) paxos_->begin(now);
}

void GenerationLog::on_vote_read(const GenerationId& generation, const Ballot& ballot,
                                 const Result<std::optional<Accepted>>& vote, TimePoint now) {
  if (generation != generation_ || state_ == State::kExcluded) return;
  paxos_->on_vote_read(ballot, vote, now);
  apply_decision(now);
}

void GenerationLog::on_vote_cast(const GenerationId& generation, const Ballot& ballot, bool cast,
                                 TimePoint now) {
  if (generation != generation_ || state_ == State::kExcluded) return;
  paxos_->on_vote_cast(ballot, cast, now);
  apply_decision(now);
}

std::optional<TimePoint> GenerationLog::next() const {
  if (state_ == State::kExcluded) return std::nullopt;
  auto out = paxos_->next();
  if (state_ == State::kInstalled || paxos_->decided() || lacks_newcomers())
    out = out ? std::min(*out, resend_at_) : resend_at_;
  return out;
}

void GenerationLog::tick(TimePoint now) {
  if (state_ == State::kExcluded) return;
  if (state_ == State::kInstalled && now >= resend_at_) {
    // Some survivor has not installed it, although no kernel has reported its death.
    if (now - installed_at_ >= timeouts_.reply_timeout) paxos_->begin(now);
    tell_installed(now);
  }
  if (now >= resend_at_ && lacks_newcomers()) {
    resend_at_ = now + timeouts_.resend;
    for (size_t rank = made_by_->survivor_count; rank < members_.size(); ++rank)
      if (!installed_->has(static_cast<int>(rank))) send_begun(members_[rank]);
  }
  paxos_->tick(now);
  apply_decision(now);
}

// ---- From one generation to the next

ConsensusMessage GenerationLog::addressed(int rank, ConsensusMessage message) const {
  message.generation = generation_;
  // A newcomer may not have received the decision, but it votes from its first message on.
  if (is_newcomer(rank)) message.made_by = made_by_;
  return message;
}

void GenerationLog::send(int rank, ConsensusMessage message) {
  delegate_.send(members_[static_cast<size_t>(rank)], addressed(rank, std::move(message)));
}

void GenerationLog::apply_decision(TimePoint now) {
  // Repeats while the new generation has decided as well, as it may if one of its members is dead.
  while (state_ != State::kExcluded && paxos_->decided())
    if (!install(PaxosInstance::Decided(*paxos_->decided()), now)) return;
}

bool GenerationLog::install(const PaxosInstance::Decided& decided, TimePoint now) {
  if (!tell_decided(decided)) {
    resend_at_ = now + timeouts_.resend;
    return false;
  }
  past_.push_back({generation_, decided.ballot, decided.value});
  if (decided.value.rank_of(self_) < 0) {
    state_ = State::kExcluded;
    deferred_.clear();
    delegate_.on_excluded(decided.value);
    return true;
  }
  enter(decided.value, now);
  delegate_.on_installed(decided.value);
  bool lacks_one = false;
  for (const ProcessId process : given_up_) {
    const int rank = rank_of(process);
    if (rank < 0) continue;
    paxos_->give_up(rank, now);
    lacks_one = true;
  }
  for (const ProcessId process : dead_) {
    const int rank = rank_of(process);
    if (rank < 0) continue;
    paxos_->on_death(rank, now);
    lacks_one = true;
  }
  if (lacks_one) paxos_->begin(now);
  tell_installed(now);
  return true;
}

// The decision is passed on before it is installed: any process that learns of this process' death
// has read the decision by then. The proposer notifies all members. In addition each member
// notifies those of its own host.
bool GenerationLog::tell_decided(const PaxosInstance::Decided& decided) {
  ConsensusMessage message;
  message.kind = ConsensusMessageKind::kDecided;
  message.ballot = decided.ballot;
  message.decision = decided.value;
  bool near_have_it = true;
  for (int rank = 0; rank < static_cast<int>(members_.size()); ++rank) {
    const ProcessId process = members_[static_cast<size_t>(rank)];
    // The second set also contains deaths that were reported after the agreement had ended.
    if (process == self_ || paxos_->dead().has(rank) || std::ranges::count(dead_, process))
      continue;
    if (delegate_.is_near(process))
      near_have_it &= delegate_.send_near(process, addressed(rank, message));
    else if (decided.mine)
      send(rank, message);
  }
  return near_have_it;
}

void GenerationLog::tell_installed(TimePoint now) {
  resend_at_ = now + timeouts_.resend;
  if (members_.front() == self_) return on_installed(0);
  ConsensusMessage message;
  message.kind = ConsensusMessageKind::kInstalled;
  send(0, std::move(message));
}

// Newcomers are notified until they answer, unless the next agreement has started.
bool GenerationLog::lacks_newcomers() const {
  return state_ == State::kBegun && made_by_ && members_.front() == self_ && installed_ &&
         installed_->count() < static_cast<int>(members_.size()) && !paxos_->is_active();
}

void GenerationLog::on_installed(int rank) {
  if (members_.front() != self_) return;
  if (!made_by_) return;  // the first generation begins without messages
  if (!installed_) installed_.emplace(static_cast<int>(members_.size()));
  const bool news = installed_->add(rank);
  if (state_ == State::kInstalled) return begin_if_all_installed();
  // A survivor that reports lacks kBegun. A newcomer's first report may confirm kBegun, so only a
  // repeated one is answered.
  if (!news || !is_newcomer(rank)) send_begun(members_[static_cast<size_t>(rank)]);
}

void GenerationLog::begin_if_all_installed() {
  for (uint32_t rank = 0; rank < made_by_->survivor_count; ++rank)
    if (!installed_->has(static_cast<int>(rank))) return;
  for (const ProcessId process : members_)
    if (process != self_) send_begun(process);
  become_begun();
}

void GenerationLog::send_begun(ProcessId to) {
  ConsensusMessage message;
  message.kind = ConsensusMessageKind::kBegun;
  message.generation = generation_;
  message.made_by = made_by_;
  delegate_.send(to, message);
}

void GenerationLog::on_begun_told(TimePoint now) {
  become_begun();
  // Confirms the receipt, so that rank 0 stops repeating the message.
  if (is_newcomer(rank_of(self_))) tell_installed(now);
}

void GenerationLog::become_begun() {
  if (state_ != State::kInstalled) return;
  state_ = State::kBegun;
  delegate_.on_begun();
}

}  // namespace ringdist
