#include "consensus/agreement.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ringdist {
namespace {

// Ranks beyond that take their turn with it: the wait is for those below who live and do nothing.
constexpr int kMostTurns = 16;
constexpr int kMostRetries = 8;
constexpr int kUnlike = 7;

}  // namespace

Agreement::Agreement(Electors electors, int rank, const Pace& pace, AgreementHost& host)
    : electors_(std::move(electors)),
      rank_(rank),
      electorate_(static_cast<int>(electors_.members.size())),
      pace_(pace),
      host_(host),
      members_(electors_.members.size()),
      dead_(electorate_.size()) {
  check(self() >= 0 && self() < size(), "an agreement without oneself");
}

void Agreement::begin(TimePoint now) {
  if (active_ || decided_) return;
  active_ = true;
  take_turn(now);
}

// ---- what it is told
// ------------------------------------------------------------------------------

void Agreement::on_message(int from, const ConsensusMessage& message, TimePoint now) {
  if (decided_) return;
  learn_deaths(message.dead, now);
  if (decided_) return;
  switch (message.kind) {
    case MessageKind::kPrepare:
      return on_prepare(from, message, now);
    case MessageKind::kAccept:
      return on_accept(from, message, now);
    case MessageKind::kRefuse:
      members_[static_cast<size_t>(from)] = {};
      return on_refused(message.ballot, now);
    case MessageKind::kPromise:
    case MessageKind::kAccepted:
      members_[static_cast<size_t>(from)] = {};
      if (!round_ || message.ballot != round_->ballot) return;
      if (message.kind == MessageKind::kPromise)
        round_->on_promise(from, message.accepted, *message.standing);
      else
        round_->accepted.add(from);
      return reconsider(now);
    case MessageKind::kWait:
      members_[static_cast<size_t>(from)].deaf = false;
      if (message.ballot == acceptor_.promised()) give_way(message.ballot, now);
      return;
    case MessageKind::kReport:
    case MessageKind::kDecided:
    case MessageKind::kAsk:
    case MessageKind::kInstalled:
    case MessageKind::kBegun:
      return;
  }
}

void Agreement::on_prepare(int from, const ConsensusMessage& message, TimePoint now) {
  const bool promised = acceptor_.promise(message.ballot);
  if (!promised) return answer(from, MessageKind::kRefuse, acceptor_.promised());
  note_promised(from, message.ballot, now);
  give_way(message.ballot, now);
  answer(from, MessageKind::kPromise, message.ballot);
}

// Who asks again for what it was answered long ago does not hear this member: nothing will come of
// its ballots.
void Agreement::note_promised(int from, const Ballot& ballot, TimePoint now) {
  Member& member = members_[static_cast<size_t>(from)];
  if (ballot != member.promised) {
    member.promised = ballot;
    member.promised_at = now;
  } else if (now - member.promised_at >= pace_.grace) {
    member.deaf = true;
  }
}

void Agreement::on_accept(int from, const ConsensusMessage& message, TimePoint now) {
  if (message.decision->generation != electors_.generation + 1) return;
  members_[static_cast<size_t>(from)].deaf = false;
  const bool accepted = acceptor_.accept(message.ballot, *message.decision);
  if (!accepted) return answer(from, MessageKind::kRefuse, acceptor_.promised());
  give_way(message.ballot, now);
  answer(from, MessageKind::kAccepted, message.ballot);
}

void Agreement::on_refused(const Ballot& promised, TimePoint now) {
  seen_ = std::max(seen_, promised);
  if (!round_ || promised <= round_->ballot) return;
  retry(now);
}

void Agreement::on_death(int rank, TimePoint now) {
  if (decided_ || dead_.has(rank)) return;
  learn_death(rank, now);
  const Ballot& promised = acceptor_.promised();
  if (promised.round > 0 && promised.rank != self() && !dead_.has(promised.rank))
    answer(promised.rank, MessageKind::kReport, promised);
}

void Agreement::suspect(int rank) {
  if (rank != self()) members_[static_cast<size_t>(rank)].suspected = true;
}

void Agreement::learn_deaths(const std::vector<int32_t>& ranks, TimePoint now) {
  for (const int32_t rank : ranks)
    if (rank >= 0 && rank < size()) learn_death(rank, now);
}

void Agreement::learn_death(int rank, TimePoint now) {
  if (rank == self() || decided_ || !dead_.add(rank)) return;
  if (round_) return reconsider(now);
  // Who was waited for will not end it.
  if (active_ && (rank == acceptor_.promised().rank || acceptor_.promised().round == 0))
    take_turn(now);
}

void Agreement::on_vote_read(const Ballot& ballot, const Result<std::optional<Accepted>>& vote,
                             TimePoint now) {
  if (decided_ || !round_ || round_->ballot != ballot) return;
  if (round_->phase != Round::Phase::kReading) return;
  if (!vote.ok()) {  // asked again after a while
    round_->store = Round::StoreVote::kNotAsked;
    return;
  }
  if (vote.value() && vote.value()->ballot > ballot) return on_refused(vote.value()->ballot, now);
  round_->store = Round::StoreVote::kRead;
  round_->store_had = vote.value();
  round_->see(vote.value());
  reconsider(now);
}

void Agreement::on_vote_cast(const Ballot& ballot, bool cast, TimePoint now) {
  if (decided_ || !round_ || round_->ballot != ballot) return;
  if (round_->phase != Round::Phase::kWriting) return;
  if (!cast) return retry(now);  // someone else's came between
  round_->store = Round::StoreVote::kCast;
  reconsider(now);
}

void Agreement::learn(const Ballot& ballot, const Decision& value, bool mine) {
  if (value.generation != electors_.generation + 1 || !acceptor_.may_learn(ballot, value)) return;
  decided_ = Decided{ballot, value, mine};
  round_.reset();
}

// ---- proposing
// ------------------------------------------------------------------------------------

void Agreement::start_round(TimePoint now) {
  seen_ = std::max(seen_, acceptor_.promised());
  seen_ = {seen_.round + 1, self()};
  round_.emplace(seen_, dead_, now);
  const bool promised = acceptor_.promise(seen_);
  check(promised, "a ballot of one's own that comes too late");
  round_->on_promise(self(), acceptor_.accepted(), host_.freeze());
  ask(round_->promised, now);
  reconsider(now);
}

void Agreement::propose(TimePoint now) {
  Round& round = *round_;
  round.phase = Round::Phase::kWriting;
  round.phase_began = now;
  round.value = round.latest ? round.latest->value : compose(electors_, round, dead_);
  const bool accepted = acceptor_.accept(round.ballot, *round.value);
  check(accepted, "a ballot of one's own that was overtaken goes on");
  round.accepted.add(self());
  ask(round.accepted, now);
  if (round.store == Round::StoreVote::kRead)
    host_.cast_vote(round.store_had, {round.ballot, *round.value});
  if (round_) reconsider(now);
}

// All who have not answered the round's question; the others learn that it is still open.
void Agreement::ask(const RankSet& answered, TimePoint now) {
  resend_at_ = now + pace_.resend;
  ConsensusMessage message;
  message.kind =
      round_->phase == Round::Phase::kReading ? MessageKind::kPrepare : MessageKind::kAccept;
  message.ballot = round_->ballot;
  message.dead = dead_ranks();
  message.decision = round_->value;
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == self() || dead_.has(rank)) continue;
    if (answered.has(rank)) {
      ConsensusMessage wait;
      wait.kind = MessageKind::kWait;
      wait.ballot = round_->ballot;
      host_.send(rank, std::move(wait));
      continue;
    }
    auto& asked = members_[static_cast<size_t>(rank)].asked;
    if (!asked) asked = now;
    host_.send(rank, message);
  }
}

void Agreement::reconsider(TimePoint now) {
  if (!round_) return;
  if (round_->phase == Round::Phase::kReading)
    reconsider_reading(now);
  else
    reconsider_writing(now);
}

void Agreement::reconsider_reading(TimePoint now) {
  Round& round = *round_;
  // A quorum would do, but whoever may still answer is to stay a member.
  if (!all_others_gone(round.promised, now)) return;
  const bool read = round.store == Round::StoreVote::kRead;
  if (electorate_.is_quorum(round.promised, read, round.dead)) return propose(now);
  if (electorate_.are_all_living(round.promised, dead_)) return start_round(now);
  if (round.store != Round::StoreVote::kNotAsked || now < read_store_at_ ||
      !electorate_.is_majority(round.promised, /*store=*/true))
    return;
  round.store = Round::StoreVote::kAsked;
  read_store_at_ = now + pace_.patience;
  host_.read_vote(round.ballot);
}

void Agreement::reconsider_writing(TimePoint now) {
  Round& round = *round_;
  const bool cast = round.store == Round::StoreVote::kCast;
  if (electorate_.is_quorum(round.accepted, cast, round.dead))
    return learn(Ballot(round.ballot), Decision(*round.value), /*mine=*/true);
  if (!all_others_gone(round.accepted, now)) return;
  const bool by_all_living = electorate_.are_all_living(round.accepted, dead_);
  if (by_all_living || now >= round.phase_began + pace_.patience) start_round(now);
}

// Those who owe an answer go on owing it.
void Agreement::retry(TimePoint now) {
  round_.reset();
  retries_ = std::min(retries_ + 1, kMostRetries);
  take_turn(now);
}

void Agreement::drop_round() {
  round_.reset();
  for (Member& member : members_) member.asked.reset();  // nobody is asked again for now
}

// ---- whose turn it is
// -----------------------------------------------------------------------------

void Agreement::give_way(const Ballot& ballot, TimePoint now) {
  seen_ = std::max(seen_, ballot);
  active_ = true;
  if (round_ && round_->ballot >= ballot) return;
  const bool of_use = !dead_.has(ballot.rank) && !members_[static_cast<size_t>(ballot.rank)].deaf;
  if (!of_use) {
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
  // It may wait for silent ones for so long, and no longer: else nobody hears what it needs to
  // hear.
  turn_at_ = std::min(now, gave_way_ + pace_.silence) + pace_.patience + delay();
}

void Agreement::take_turn(TimePoint now) { turn_at_ = now + delay(); }

Duration Agreement::delay() const {
  int before = 0;
  for (int rank = 0; rank < self(); ++rank)
    before += !dead_.has(rank) && !members_[static_cast<size_t>(rank)].suspected;
  // Two who overtake each other wait longer each time, and not alike.
  return pace_.step * (std::min(before, kMostTurns) + retries_ * (1 + self() % kUnlike));
}

std::optional<TimePoint> Agreement::next() const {
  if (!active_ || decided_) return std::nullopt;
  return round_ ? resend_at_ : turn_at_;
}

void Agreement::tick(TimePoint now) {
  const auto at = next();
  if (!at || now < *at) return;
  if (!round_) return start_round(now);
  ask(round_->phase == Round::Phase::kReading ? round_->promised : round_->accepted, now);
  reconsider(now);
}

// ---- the rest
// -------------------------------------------------------------------------------------

void Agreement::answer(int to, MessageKind kind, const Ballot& ballot) {
  ConsensusMessage message;
  message.kind = kind;
  message.ballot = ballot;
  message.dead = dead_ranks();
  if (kind == MessageKind::kPromise) {
    message.accepted = acceptor_.accepted();
    message.standing = host_.freeze();
  }
  host_.send(to, std::move(message));
}

bool Agreement::is_silent(int rank, TimePoint now) const {
  const Member& member = members_[static_cast<size_t>(rank)];
  return member.asked && now - *member.asked >= (member.suspected ? pace_.grace : pace_.silence);
}

bool Agreement::all_others_gone(const RankSet& votes, TimePoint now) const {
  for (int rank = 0; rank < size(); ++rank)
    if (!votes.has(rank) && !dead_.has(rank) && !is_silent(rank, now)) return false;
  return true;
}

std::vector<int32_t> Agreement::dead_ranks() const {
  std::vector<int32_t> out;
  for (int rank = 0; rank < size(); ++rank)
    if (dead_.has(rank)) out.push_back(rank);
  return out;
}

std::string Agreement::describe(TimePoint now) const {
  RankSet voters(size());
  voters.add(self());
  if (round_)
    for (int rank = 0; rank < size(); ++rank)
      if (round_->promised.has(rank)) voters.add(rank);
  std::string out = "no quorum: " + std::to_string(voters.count()) + " of " +
                    std::to_string(size()) + " voters, " + std::to_string(electorate_.needed()) +
                    " needed";
  for (int rank = 0; rank < size(); ++rank) {
    if (voters.has(rank)) continue;
    out += "; rank " + std::to_string(rank);
    if (dead_.has(rank))
      out += " died";
    else
      out += is_silent(rank, now) ? " is silent" : " has not answered";
  }
  return out;
}

}  // namespace ringdist
