#include "membership/paxos/paxos_instance.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ringdist {
namespace {

// Limit of the ranks that the stagger counts. Ranks above it propose at the same time, because the
// wait covers only lower ranks that live and do nothing.
constexpr int kMostTurns = 16;
constexpr int kMostRetries = 8;  // limit of the back-off
constexpr int kUnlike = 7;       // number of different back-offs among ranks
// A round that is so far beyond the latest one comes from corrupt bytes and is ignored.
constexpr uint32_t kMostAhead = 1 << 20;

}  // namespace

PaxosInstance::PaxosInstance(Voters voters, int rank, const PaxosTimeouts& timeouts,
                             PaxosDelegate& delegate)
    : voters_(std::move(voters)),
      rank_(rank),
      quorum_(static_cast<int>(voters_.members.size())),
      timeouts_(timeouts),
      delegate_(delegate),
      others_(quorum_.size(), timeouts) {
  check(self() >= 0 && self() < size(), "an agreement without oneself");
}

void PaxosInstance::begin(TimePoint now) {
  if (active_ || decided_) return;
  active_ = true;
  take_turn(now);
}

// ---- Input

void PaxosInstance::on_message(int from, const ConsensusMessage& message, TimePoint now) {
  if (decided_ || !is_in_order(from, message)) return;
  learn_deaths(message.dead, now);
  // A death may have completed this member's own ballot.
  if (decided_) return;
  switch (message.kind) {
    case ConsensusMessageKind::kPrepare:
      return on_prepare(from, message, now);
    case ConsensusMessageKind::kAccept:
      return on_accept(from, message, now);
    case ConsensusMessageKind::kRefuse:
      others_.note_answer(from);
      return on_refused(message.ballot, now);
    case ConsensusMessageKind::kPromise:
    case ConsensusMessageKind::kAccepted:
      others_.note_answer(from);
      if (!round_ || message.ballot != round_->ballot) return;
      if (message.kind == ConsensusMessageKind::kPromise)
        round_->on_promise(from, message.accepted, *message.info);
      else
        round_->accepted.add(from);
      return reconsider(now);
    case ConsensusMessageKind::kWait:
      others_.note_responsive(from);
      if (message.ballot == acceptor_.promised()) give_way(message.ballot, now);
      return;
    case ConsensusMessageKind::kReport:
    case ConsensusMessageKind::kDecided:
    case ConsensusMessageKind::kAsk:
    case ConsensusMessageKind::kInstalled:
    case ConsensusMessageKind::kBegun:
      return;
  }
}

// Only a ballot's proposer sends requests for it, and promises and acceptances are for this
// member's own ballots only.
bool PaxosInstance::is_in_order(int from, const ConsensusMessage& message) const {
  switch (message.kind) {
    case ConsensusMessageKind::kPrepare:
    case ConsensusMessageKind::kAccept:
    case ConsensusMessageKind::kWait:
      return message.ballot.rank == from && message.ballot.round <= seen_.round + kMostAhead;
    case ConsensusMessageKind::kPromise:
    case ConsensusMessageKind::kAccepted:
      return message.ballot.rank == self();
    case ConsensusMessageKind::kRefuse:
      return message.ballot.round <= seen_.round + kMostAhead;
    default:
      return true;
  }
}

void PaxosInstance::on_prepare(int from, const ConsensusMessage& message, TimePoint now) {
  const bool promised = acceptor_.promise(message.ballot);
  if (!promised) return answer(from, ConsensusMessageKind::kRefuse, acceptor_.promised());
  others_.note_promise(from, message.ballot, now);
  give_way(message.ballot, now);
  answer(from, ConsensusMessageKind::kPromise, message.ballot);
}

void PaxosInstance::on_accept(int from, const ConsensusMessage& message, TimePoint now) {
  others_.note_responsive(from);
  const bool accepted = acceptor_.accept(message.ballot, *message.decision);
  if (!accepted) return answer(from, ConsensusMessageKind::kRefuse, acceptor_.promised());
  give_way(message.ballot, now);
  answer(from, ConsensusMessageKind::kAccepted, message.ballot);
}

void PaxosInstance::on_refused(const Ballot& promised, TimePoint now) {
  seen_ = std::max(seen_, promised);
  if (!round_ || promised <= round_->ballot) return;
  retry(now);
}

void PaxosInstance::on_death(int rank, TimePoint now) {
  if (decided_ || dead().has(rank)) return;
  learn_death(rank, now);
  const Ballot& promised = acceptor_.promised();
  if (promised.round > 0 && promised.rank != self() && !dead().has(promised.rank))
    answer(promised.rank, ConsensusMessageKind::kReport, promised);
}

void PaxosInstance::give_up(int rank, TimePoint now) {
  if (rank == self() || decided_) return;
  others_.give_up(rank, now);
  if (round_) return reconsider(now);
  if (active_ && rank == acceptor_.promised().rank) take_turn(now);
}

void PaxosInstance::learn_deaths(const std::vector<int32_t>& ranks, TimePoint now) {
  for (const int32_t rank : ranks)
    if (rank >= 0 && rank < size()) learn_death(rank, now);
}

void PaxosInstance::learn_death(int rank, TimePoint now) {
  if (rank == self() || decided_ || !others_.note_death(rank)) return;
  if (round_) return reconsider(now);
  // The proposer that this member waits for has died. If nothing was promised, a lower rank may
  // have died, which makes this member's turn come earlier.
  if (active_ && (rank == acceptor_.promised().rank || acceptor_.promised().round == 0))
    take_turn(now);
}

void PaxosInstance::on_vote_read(const Ballot& ballot, const Result<std::optional<Accepted>>& vote,
                                 TimePoint now) {
  if (decided_ || !round_ || round_->ballot != ballot) return;
  if (round_->phase != BallotRound::Phase::kReading) return;
  const bool readable =
      vote.ok() && (!vote.value() || (vote.value()->value.follows(voters_.generation) &&
                                      vote.value()->value.comes_from(voters_.members)));
  if (!readable) return;  // the store is queried again after a pause
  if (vote.value() && vote.value()->ballot > ballot) return on_refused(vote.value()->ballot, now);
  round_->store_read = true;
  round_->store_had = vote.value();
  round_->see(vote.value());
  reconsider(now);
}

void PaxosInstance::on_vote_cast(const Ballot& ballot, bool cast, TimePoint now) {
  if (decided_ || !round_ || round_->ballot != ballot) return;
  if (round_->phase != BallotRound::Phase::kCasting) return;
  if (!cast) return retry(now);  // another vote came between, or the store is gone
  round_->store_cast = true;
  write(now);
}

void PaxosInstance::learn(Ballot ballot, Decision value, bool mine) {
  if (!acceptor_.may_learn(ballot, value)) return;
  // This member accepts nothing up to its promise any more, so the decision holds as of that
  // ballot.
  decided_ = Decided{std::max(ballot, acceptor_.promised()), std::move(value), mine};
  round_.reset();
}

// ---- Proposing

// The round is above all that this member has seen, so its own promise cannot fail.
void PaxosInstance::start_round(TimePoint now) {
  seen_ = std::max(seen_, acceptor_.promised());
  seen_ = {seen_.round + 1, self()};
  round_.emplace(seen_, dead(), now);
  const bool promised = acceptor_.promise(seen_);
  check(promised, "a ballot of one's own that comes too late");
  round_->on_promise(self(), acceptor_.accepted(), delegate_.stop_and_report());
  ask(now);
  reconsider(now);
}

void PaxosInstance::propose(TimePoint now) {
  BallotRound& round = *round_;
  round.value = round.latest ? round.latest->value : compose_decision(voters_, round, dead());
  // The store's vote is needed only if the members' votes are no quorum.
  if (quorum_.is_quorum(round.promised, /*store=*/false, round.dead)) return write(now);
  round.enter(BallotRound::Phase::kCasting, now);
  delegate_.cast_vote(round.store_had, {round.ballot, *round.value});
}

void PaxosInstance::write(TimePoint now) {
  BallotRound& round = *round_;
  round.enter(BallotRound::Phase::kWriting, now);
  const bool accepted = acceptor_.accept(round.ballot, *round.value);
  check(accepted, "a ballot of one's own that was overtaken goes on");
  round.accepted.add(self());
  ask(now);
  reconsider(now);
}

// Members that have answered receive kWait, so that they leave the proposer its time.
void PaxosInstance::ask(TimePoint now) {
  resend_at_ = now + timeouts_.resend;
  const bool writing = round_->phase == BallotRound::Phase::kWriting;
  ConsensusMessage question;
  question.kind = writing ? ConsensusMessageKind::kAccept : ConsensusMessageKind::kPrepare;
  question.ballot = round_->ballot;
  question.dead = others_.dead_ranks();
  if (writing) question.decision = round_->value;
  ConsensusMessage wait;
  wait.kind = ConsensusMessageKind::kWait;
  wait.ballot = round_->ballot;
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == self() || dead().has(rank)) continue;
    const bool answered = round_->answered().has(rank);
    if (!answered) others_.note_request(rank, now);
    delegate_.send(rank, answered ? wait : question);
  }
}

void PaxosInstance::reconsider(TimePoint now) {
  if (!round_) return;
  switch (round_->phase) {
    case BallotRound::Phase::kReading:
      return reconsider_reading(now);
    case BallotRound::Phase::kCasting:
      // The store has not answered in time.
      if (now >= round_->phase_began + timeouts_.proposal_timeout) retry(now);
      return;
    case BallotRound::Phase::kWriting:
      return reconsider_writing(now);
  }
}

void PaxosInstance::reconsider_reading(TimePoint now) {
  BallotRound& round = *round_;
  // A quorum would be enough, but every voter that may still answer shall remain a member.
  if (!others_.all_others_gone(round.promised, now)) return;
  if (quorum_.is_quorum(round.promised, round.store_read, round.dead)) return propose(now);
  // Only deaths that were reported since the ballot began are missing: a new ballot counts them.
  if (quorum_.are_all_living(round.promised, dead())) return start_round(now);
  // A store that does not answer is queried again after a pause.
  if (round.store_read || now < read_store_at_ ||
      !quorum_.is_majority(round.promised, /*store=*/true))
    return;
  read_store_at_ = now + timeouts_.proposal_timeout;
  delegate_.read_vote(round.ballot);
}

// If nobody else will answer and the votes are no quorum, only a new ballot helps. It starts at
// once if the deaths reported since make a quorum, else after a pause.
void PaxosInstance::reconsider_writing(TimePoint now) {
  BallotRound& round = *round_;
  if (quorum_.is_quorum(round.accepted, round.store_cast, round.dead))
    return learn(round.ballot, *round.value, /*mine=*/true);
  if (!others_.all_others_gone(round.accepted, now)) return;
  const bool by_all_living = quorum_.are_all_living(round.accepted, dead());
  if (by_all_living || now >= round.phase_began + timeouts_.proposal_timeout) start_round(now);
}

// The reply timeouts of voters that have not answered continue to run.
void PaxosInstance::retry(TimePoint now) {
  round_.reset();
  retries_ = std::min(retries_ + 1, kMostRetries);
  take_turn(now);
}

void PaxosInstance::drop_round() {
  round_.reset();
  others_.drop_questions();  // this member repeats no request while it gives way
}

// ---- Turns

// If the other proposer is dead, given up or unresponsive, this member does not wait for it.
void PaxosInstance::give_way(const Ballot& ballot, TimePoint now) {
  seen_ = std::max(seen_, ballot);
  active_ = true;
  if (round_ && round_->ballot >= ballot) return;
  if (!others_.is_of_use(ballot.rank)) {
    if (round_) {
      retry(now);
    } else if (gave_way_to_.rank == ballot.rank) {
      gave_way_to_ = {};
      take_turn(now);
    }
    return;
  }
  if (round_) drop_round();
  if (gave_way_to_ != ballot) {
    gave_way_to_ = ballot;
    gave_way_ = now;
  }
  // The other proposer may wait for silent voters for the reply timeout and no longer. Otherwise
  // members would wait without end for a proposer that makes no progress.
  turn_at_ =
      std::min(now, gave_way_ + timeouts_.reply_timeout) + timeouts_.proposal_timeout + delay();
}

void PaxosInstance::take_turn(TimePoint now) { turn_at_ = now + delay(); }

Duration PaxosInstance::delay() const {
  const int before = others_.count_before(self());
  // Proposers that overtake each other wait longer each time, and by different amounts.
  return timeouts_.proposer_stagger *
         (std::min(before, kMostTurns) + retries_ * (1 + self() % kUnlike));
}

std::optional<TimePoint> PaxosInstance::next() const {
  if (!active_ || decided_) return std::nullopt;
  return round_ ? resend_at_ : turn_at_;
}

void PaxosInstance::tick(TimePoint now) {
  const auto at = next();
  if (!at || now < *at) return;
  if (!round_) return start_round(now);
  ask(now);
  reconsider(now);
}

// ---- Replies and reports

void PaxosInstance::answer(int to, ConsensusMessageKind kind, const Ballot& ballot) {
  ConsensusMessage message;
  message.kind = kind;
  message.ballot = ballot;
  message.dead = others_.dead_ranks();
  if (kind == ConsensusMessageKind::kPromise) {
    message.accepted = acceptor_.accepted();
    message.info = delegate_.stop_and_report();
  }
  delegate_.send(to, std::move(message));
}

std::string PaxosInstance::describe(TimePoint now) const {
  RankSet voters = round_ ? round_->promised : RankSet(size());
  voters.add(self());
  if (!round_ && gave_way_to_.round > 0 && others_.is_of_use(gave_way_to_.rank))
    voters.add(gave_way_to_.rank);  // this proposer lives: it has sent a request
  std::string out = "no quorum: " + std::to_string(voters.count()) + " of " +
                    std::to_string(size()) + " voters, " + std::to_string(quorum_.needed()) +
                    " needed";
  for (int rank = 0; rank < size(); ++rank) {
    if (voters.has(rank)) continue;
    out += "; rank " + std::to_string(rank);
    if (dead().has(rank))
      out += " died";
    else
      out += others_.is_silent(rank, now) ? " is silent" : " has not answered";
  }
  return out;
}

}  // namespace ringdist
