#include "membership/group_consensus.h"

#include <algorithm>
#include <ranges>
#include <utility>

namespace ringdist {

namespace {

// Intervals of join requests. The first few are frequent, since the members have yet to answer.
constexpr Duration kRetryEvery = Milliseconds(200);
constexpr Duration kFirstAttempts = Milliseconds(50);
constexpr int kManyAttempts = 8;  // requests at the short interval

// Lowest ranks, to which all members vouch for newcomers. The second one is for the case that the
// first is lost.
constexpr size_t kMostProposers = 2;

}  // namespace

GroupConsensus::GroupConsensus(ProcessId self, const InitialMembers& origin,
                               const PaxosTimeouts& timeouts, MembershipTransport& post,
                               std::shared_ptr<GroupConsensusDelegate> owner, RunLater later)
    : self_(self),
      nonce_(origin.nonce),
      timeouts_(timeouts),
      transport_(post),
      delegate_(std::move(owner)),
      later_(std::move(later)) {
  // This private base is not accessible to make_unique().
  GenerationLogDelegate& delegate = *this;
  if (!origin.members.empty())
    generations_ = std::make_unique<GenerationLog>(self, GenerationId{0, origin.nonce},
                                                   origin.members, timeouts, delegate);
}

// First it dials the members of this host: those that have ended are reported as dead before the
// agreement sends its first requests.
void GroupConsensus::begin(TimePoint now) {
  now_ = now;
  if (!generations_) return request_join(now);
  watch(now);
  generations_->begin(now);
}

void GroupConsensus::begin_after(uint32_t generation, TimePoint now) {
  if (!generations_ || generations_->generation().number == generation) begin(now);
}

void GroupConsensus::on_message(const MessageOrigin& origin, const MembershipMessage& message,
                                TimePoint now) {
  const ProcessId from = origin.process;
  now_ = now;
  switch (message.kind) {
    case MembershipMessage::Kind::kWithdrawn:
      return give_up(from, now);
    case MembershipMessage::Kind::kJoinRequest:
      return on_join_request(origin, message.body, now);
    case MembershipMessage::Kind::kReached:
      return on_reached(from, message.body, now);
    case MembershipMessage::Kind::kVouched:
      return on_vouched(from, message.body, now);
    case MembershipMessage::Kind::kAgreement: {
      const auto agreement = decode_consensus(message.body);
      if (agreement.ok()) on_agreement(from, agreement.value(), now);
    }
  }
}

void GroupConsensus::on_agreement(ProcessId from, const ConsensusMessage& message, TimePoint now) {
  if (!generations_ && !become_member(from, message, now)) return;
  generations_->on_message(from, message, now);
  // The message may be deferred until the end of one of these members has been reported.
  watch(now);
}

bool GroupConsensus::become_member(ProcessId from, const ConsensusMessage& message, TimePoint now) {
  if (!message.made_by || message.made_by->rank_of(from) < 0 || from == self_) return false;
  GenerationLogDelegate& delegate = *this;
  generations_ = GenerationLog::admitted(self_, message, timeouts_, delegate, now);
  if (!generations_) return false;
  delegate_->on_installed(*message.made_by);
  for (const ProcessId process : given_up_) generations_->give_up(process, now);
  for (const ProcessId process : dead_) generations_->on_death(process, now);
  return true;
}

void GroupConsensus::on_death(ProcessId process, TimePoint now) {
  now_ = now;
  if (!generations_) return dead_.push_back(process);
  generations_->on_death(process, now);
}

void GroupConsensus::give_up(ProcessId process, TimePoint now) {
  now_ = now;
  if (!generations_) return given_up_.push_back(process);
  generations_->give_up(process, now);
}

std::optional<TimePoint> GroupConsensus::next() const {
  return generations_ ? generations_->next() : join_request_at_;
}

std::string GroupConsensus::describe(TimePoint now) const {
  if (generations_) return generations_->describe(now);
  if (to_reach_.empty()) return "none of its members has reached this process";
  return std::to_string(reached()) + " of its " + std::to_string(to_reach_.size()) +
         " members have reached this process";
}

void GroupConsensus::tick(TimePoint now) {
  now_ = now;
  const auto at = next();
  if (!at) return;
  if (!generations_) return now >= *at ? request_join(now) : void();
  watch(now);
  if (*at <= now) generations_->tick(now);
}

size_t GroupConsensus::reached() const {
  return static_cast<size_t>(
      std::ranges::count_if(to_reach_, [this](ProcessId one) { return numbers_.contains(one); }));
}

void GroupConsensus::on_join_request(const MessageOrigin& from, ConstBytes body, TimePoint now) {
  Reader in(body);
  const auto number = in.get<uint64_t>();
  if (!generations_ || !in.ok()) return;
  const auto* text = reinterpret_cast<const char*>(body.data());
  const std::string entry(text + sizeof number, body.size() - sizeof number);
  const JoinAnswer answer = delegate_->on_join_request({from.process, entry}, from, number);
  // The owner has the address only after it has checked whether the newcomer shares this host.
  const auto to = delegate_->address_of(from.process);
  if (answer.number == 0 || !to || generations_->state() != GenerationLog::State::kBegun) return;
  Writer out;
  out.put(generations_->generation().number).put(answer.number);
  out.put(static_cast<uint32_t>(generations_->members().size()));
  for (const ProcessId member : generations_->members()) out.put(member);
  const auto reply =
      MembershipMessage{nonce_, MembershipMessage::Kind::kReached, out.take()}.encode();
  (void)transport_.send(*to, nonce_, reply, /*certain=*/false, now);
  if (answer.repeated) vouch(from.process, now);
}

void GroupConsensus::vouch(ProcessId newcomer, TimePoint now) {
  const auto body = Writer().put(generations_->generation().nonce).put(newcomer).take();
  const auto message = MembershipMessage{nonce_, MembershipMessage::Kind::kVouched, body}.encode();
  for (const ProcessId process : generations_->members() | std::views::take(kMostProposers))
    if (const auto to = delegate_->address_of(process); to && process != self_)
      (void)transport_.send(*to, nonce_, message, /*certain=*/false, now);
  count_vouch(newcomer, self_, now);
}

void GroupConsensus::on_vouched(ProcessId from, ConstBytes body, TimePoint now) {
  Reader in(body);
  const auto nonce = in.get<uint64_t>();
  const auto newcomer = in.get<ProcessId>();
  if (generations_ && in.ended() && nonce == generations_->generation().nonce)
    count_vouch(newcomer, from, now);
}

void GroupConsensus::count_vouch(ProcessId newcomer, ProcessId member, TimePoint now) {
  const auto& members = generations_->members();
  const auto own = static_cast<size_t>(rank_of(self_, members));
  if (own >= kMostProposers || rank_of(member, members) < 0) return;
  if (generations_->state() != GenerationLog::State::kBegun) return;
  if (delegate_->on_vouched(newcomer, member)) begin(now);
}

// An answer that names a later generation replaces the list of members. The senders of earlier
// answers still count if they are in it.
void GroupConsensus::on_reached(ProcessId from, ConstBytes body, TimePoint now) {
  Reader in(body);
  const auto generation = in.get<uint32_t>();
  const auto number = in.get<uint64_t>();
  std::vector<ProcessId> members;
  get_each(in, [&] { members.push_back(in.get<ProcessId>()); });
  if (generations_ || !in.ended() || rank_of(from, members) < 0) return;
  const bool was_by_all = is_reached_by_all();
  numbers_[from] = number;
  if (!reached_in_ || generation > *reached_in_) {
    reached_in_ = generation;
    to_reach_ = std::move(members);
  }
  if (!was_by_all && is_reached_by_all()) request_join(now);
}

void GroupConsensus::request_join(TimePoint now) {
  join_request_at_ = now + (++attempts_ < kManyAttempts ? kFirstAttempts : kRetryEvery);
  const std::string entry = delegate_->entry();
  const auto* bytes = reinterpret_cast<const std::byte*>(entry.data());
  for (const auto& [process, to] : delegate_->addresses()) {
    if (process == self_) continue;
    const auto number = numbers_.find(process);
    auto body = Writer().put(number == numbers_.end() ? uint64_t{0} : number->second).take();
    body.insert(body.end(), bytes, bytes + entry.size());
    const auto message =
        MembershipMessage{nonce_, MembershipMessage::Kind::kJoinRequest, body}.encode();
    (void)transport_.send(to, nonce_, message, /*certain=*/false, now);
  }
}

void GroupConsensus::watch(TimePoint now) {
  for (const ProcessId process : generations_->members())
    if (process != self_)
      if (const auto to = delegate_->address_of(process); to && to->kind == LinkKind::kLocal)
        transport_.watch(*to, nonce_, now);
}

bool GroupConsensus::is_near(ProcessId process) {
  const auto to = delegate_->address_of(process);
  return to && to->kind == LinkKind::kLocal;
}

void GroupConsensus::send(ProcessId to, const ConsensusMessage& message) {
  (void)send_message(to, message, /*certain=*/false);
}

bool GroupConsensus::send_near(ProcessId to, const ConsensusMessage& message) {
  return send_message(to, message, /*certain=*/true);
}

bool GroupConsensus::send_message(ProcessId process, const ConsensusMessage& message,
                                  bool certain) {
  const auto to = delegate_->address_of(process);
  if (!to) return false;
  const auto frame =
      MembershipMessage{nonce_, MembershipMessage::Kind::kAgreement, encode(message)}.encode();
  return transport_.send(*to, nonce_, frame, certain, now_);
}

// The answer may come on any thread. It is passed on to the membership thread, and dropped if this
// object does not exist any more.
void GroupConsensus::read_vote(const Ballot& ballot) {
  const GenerationId generation = generations_->generation();
  delegate_->read_vote(generation, [later = later_, generation,
                                    ballot](const Result<std::optional<Accepted>>& vote) {
    later([generation, ballot, vote](GroupConsensus& self, TimePoint now) {
      self.now_ = now;
      self.generations_->on_vote_read(generation, ballot, vote, now);
    });
  });
}

void GroupConsensus::cast_vote(const Ballot& ballot, const std::optional<Accepted>& before,
                               const Accepted& vote) {
  const GenerationId generation = generations_->generation();
  delegate_->cast_vote(generation, before, vote, [later = later_, generation, ballot](bool cast) {
    later([generation, ballot, cast](GroupConsensus& self, TimePoint now) {
      self.now_ = now;
      self.generations_->on_vote_cast(generation, ballot, cast, now);
    });
  });
}

}  // namespace ringdist
