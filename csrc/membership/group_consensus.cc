#include "membership/group_consensus.h"

#include <utility>

namespace ringdist {

namespace {

// Intervals of join requests. The first few are frequent, since the members have yet to answer.
constexpr Duration kRetryEvery = Milliseconds(200);
constexpr Duration kFirstAttempts = Milliseconds(50);
constexpr int kManyAttempts = 8;  // requests at the short interval

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
      return on_join_request(from, message.body, now);
    case MembershipMessage::Kind::kReached:
      return on_reached(from, message.body, now);
    case MembershipMessage::Kind::kAgreement: {
      const auto agreement = decode_consensus(message.body);
      if (agreement.ok()) on_agreement(from, agreement.value(), now);
    }
  }
}

void GroupConsensus::on_agreement(ProcessId from, const ConsensusMessage& message, TimePoint now) {
  if (!generations_ && !become_member(message, now)) return;
  generations_->on_message(from, message, now);
  // The message may be deferred until the end of one of these members has been reported.
  watch(now);
}

bool GroupConsensus::become_member(const ConsensusMessage& message, TimePoint now) {
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
  return static_cast<size_t>(std::ranges::count_if(
      to_reach_, [this](ProcessId one) { return reached_by_.contains(one); }));
}

void GroupConsensus::on_join_request(ProcessId from, ConstBytes body, TimePoint now) {
  Reader in(body);
  const auto reached = in.get<uint32_t>();
  if (!generations_ || !in.ok()) return;
  const auto* text = reinterpret_cast<const char*>(body.data());
  const std::string entry(text + sizeof reached, body.size() - sizeof reached);
  if (delegate_->on_join_request({from, entry}, reached)) return begin(now);
  // The owner has the address only after it has checked whether the newcomer shares this host.
  const auto to = delegate_->address_of(from);
  if (!to || generations_->state() != GenerationLog::State::kBegun) return;
  Writer out;
  out.put(generations_->generation().number);
  out.put(static_cast<uint32_t>(generations_->members().size()));
  for (const ProcessId member : generations_->members()) out.put(member);
  const auto answer =
      MembershipMessage{nonce_, MembershipMessage::Kind::kReached, out.take()}.encode();
  (void)transport_.send(*to, nonce_, answer, /*certain=*/false, now);
}

// An answer that names a later generation replaces the list of members. The senders of earlier
// answers still count if they are in it.
void GroupConsensus::on_reached(ProcessId from, ConstBytes body, TimePoint now) {
  Reader in(body);
  const auto number = in.get<uint32_t>();
  std::vector<ProcessId> members;
  get_each(in, [&] { members.push_back(in.get<ProcessId>()); });
  if (generations_ || !in.ended()) return;
  const bool was_by_all = is_reached_by_all();
  reached_by_.insert(from);
  if (reached_in_ == MembershipMessage::kNoGeneration || number > reached_in_) {
    reached_in_ = number;
    to_reach_ = std::move(members);
  }
  if (!was_by_all && is_reached_by_all()) request_join(now);
}

void GroupConsensus::request_join(TimePoint now) {
  join_request_at_ = now + (++attempts_ < kManyAttempts ? kFirstAttempts : kRetryEvery);
  const std::string entry = delegate_->entry();
  const auto* bytes = reinterpret_cast<const std::byte*>(entry.data());
  auto body =
      Writer().put(is_reached_by_all() ? reached_in_ : MembershipMessage::kNoGeneration).take();
  body.insert(body.end(), bytes, bytes + entry.size());
  const auto message =
      MembershipMessage{nonce_, MembershipMessage::Kind::kJoinRequest, body}.encode();
  for (const auto& [process, to] : delegate_->addresses())
    if (process != self_) (void)transport_.send(to, nonce_, message, /*certain=*/false, now);
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
