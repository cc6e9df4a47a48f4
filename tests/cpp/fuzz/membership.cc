// Fuzz target: messages of a group consensus, to a member and to a newcomer.
#include <sys/socket.h>

#include <array>
#include <deque>
#include <map>

#include "fuzz/target.h"
#include "membership/group_consensus.h"

namespace ringdist::test {
namespace membership_fuzz {

constexpr ProcessId kSelf = 1;
constexpr uint64_t kGroup = 7;
constexpr size_t kMembers = 4;  // processes 1 to 4

enum Step : uint8_t { kMessage, kBytes, kTick, kBegin, kDeath, kGiveUp, kVote, kSteps };

// The group's owner. It answers for the store at a step of the input.
class Owner final : public GroupConsensusDelegate {
 public:
  std::optional<PeerAddress> address_of(ProcessId process) override {
    // Nobody listens there, so each dial fails at once.
    if (process == 0 || process > kMembers) return std::nullopt;
    return PeerAddress{process, LinkKind::kLocal, "@ringdist-nobody", "127.0.0.1:1"};
  }
  std::map<ProcessId, PeerAddress> addresses() override { return {}; }
  bool accepts_joins() override { return true; }
  JoinAnswer on_join_request(const Newcomer&, const MessageOrigin&, uint64_t number) override {
    return {9, number == 9};
  }
  bool on_vouched(ProcessId, ProcessId) override { return true; }
  std::string entry() override { return "entry"; }
  PromiseInfo stop_and_report() override {
    PromiseInfo out;
    out.first_unfinished = 3;
    out.store = "127.0.0.1:2";
    return out;
  }
  void read_vote(const GenerationId&, VoteRead then) override { reads.push_back(std::move(then)); }
  void cast_vote(const GenerationId&, const std::optional<Accepted>&, const Accepted&,
                 VoteCast then) override {
    casts.push_back(std::move(then));
  }
  // Every installed generation has this process, and follows the one before.
  void on_installed(const Decision& decision) override {
    check(decision.makes_sense() && decision.rank_of(kSelf) >= 0, "installs a foreign decision");
    check(!installed || decision.follows(*installed), "a generation is left out");
    check(!is_excluded, "installs after it was excluded");
    installed = decision.id();
  }
  void on_begun() override {}
  void on_excluded(const Decision& decision) override {
    check(decision.rank_of(kSelf) < 0, "excluded by its own generation");
    is_excluded = true;
  }

  std::deque<VoteRead> reads;
  std::deque<VoteCast> casts;
  std::optional<GenerationId> installed;
  bool is_excluded = false;
};

auto encode_message(const ConsensusMessage& message) { return encode(message); }
std::string as_text(ConstBytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class World final : private MembershipTransport::Delegate {
 public:
  World(ProcessId self_rank, bool is_newcomer) : owner_(std::make_shared<Owner>()) {
    InitialMembers origin{kGroup, {}};
    for (ProcessId one = 2; one <= kMembers; ++one) origin.members.push_back(one);
    const auto at = static_cast<ptrdiff_t>(self_rank % kMembers);
    origin.members.insert(origin.members.begin() + at, kSelf);
    if (is_newcomer) origin.members.clear();
    if (!is_newcomer) owner_->installed = GenerationId{0, kGroup};
    consensus_.emplace(kSelf, origin, PaxosTimeouts(), transport_, owner_,
                       [this](auto task) { task(*consensus_, now_); });
  }
  void step(uint8_t step, FuzzInput& input) {
    const ProcessId process = input.byte() % (kMembers + 2);
    if (step == kMessage) on_message({process, LinkKind::kLocal}, input.piece());
    if (step == kBytes) receive(process, input.piece());
    if (step == kTick) now_ += Milliseconds(10) * input.byte();
    if (step == kBegin) consensus_->begin_after(process, now_);
    if (step == kDeath && process != kSelf) consensus_->on_death(process, now_);
    if (step == kGiveUp && process != kSelf) consensus_->give_up(process, now_);
    if (step == kVote) vote(process, input.piece());
    if (const auto at = consensus_->next(); at && *at <= now_) consensus_->tick(now_);
    transport_.tick(now_);
    (void)consensus_->describe(now_);
  }

 private:
  void on_message(const MessageOrigin& from, ConstBytes bytes) override {
    const auto message = MembershipMessage::decode(bytes);
    check_round_trip(bytes, MembershipMessage::decode,
                     [](const auto& one) { return one.encode(); });
    if (!message) return;
    if (message->kind == MembershipMessage::Kind::kAgreement)
      check_round_trip(message->body, decode_consensus, encode_message);
    consensus_->on_message(from, *message, now_);
  }
  void on_deserted(ProcessId) override {}

  // Passes bytes as a connection of that process brings them.
  void receive(ProcessId from, ConstBytes bytes) {
    std::array<int, 2> ends{};
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0, "no sockets");
    const Fd theirs = Fd::open([&] { return ends[0]; });
    (void)::send(theirs.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    (void)transport_.adopt(FramedSocket(Fd::open([&] { return ends[1]; })),
                           {from, LinkKind::kLocal}, now_);
    for (const auto& event : epoll_.value().wait(Duration(0))) transport_.on_event(event.key, now_);
  }
  // Answers the oldest question to the store.
  void vote(ProcessId answer, ConstBytes bytes) {
    if (!owner_->reads.empty()) {
      const auto read = std::move(owner_->reads.front());
      owner_->reads.pop_front();
      if (answer == 0) return read(std::optional<Accepted>());
      auto accepted = decode_vote(as_text(bytes));
      if (!accepted.ok()) return read(accepted.error());
      read(std::optional(accepted.value()));
    } else if (!owner_->casts.empty()) {
      const auto cast = std::move(owner_->casts.front());
      owner_->casts.pop_front();
      cast(answer != 0);
    }
  }

  TimePoint now_ = TimePoint() + std::chrono::hours(1);
  Result<Epoll> epoll_ = Epoll::create();
  MembershipTransport transport_{kSelf, epoll_.value(), 1,
                                 static_cast<MembershipTransport::Delegate&>(*this)};
  const std::shared_ptr<Owner> owner_;
  std::optional<GroupConsensus> consensus_;
};

bool run(ConstBytes bytes) {
  FuzzInput input(bytes);
  const uint8_t start = input.byte();
  World world(start, (start & 128) != 0);
  while (!input.empty()) world.step(input.byte() % kSteps, input);
  return true;
}

// ---- Seeds

Decision decision_of(std::vector<ProcessId> members, std::vector<LostMember> lost) {
  Decision out;
  out.generation = 1;
  out.after = kGroup;
  out.proposed = {1, 0};
  out.survivor_count = static_cast<uint32_t>(members.size());
  out.members = std::move(members);
  out.lost = std::move(lost);
  out.store = "127.0.0.1:2";
  return out;
}

std::vector<std::byte> message_of(ConsensusMessageKind kind,
                                  const std::function<void(ConsensusMessage&)>& fill = nullptr) {
  ConsensusMessage message;
  message.kind = kind;
  message.generation = {0, kGroup};
  message.ballot = {1, 0};
  if (fill) fill(message);
  return MembershipMessage{kGroup, MembershipMessage::Kind::kAgreement, encode(message)}.encode();
}

std::vector<std::byte> body(MembershipMessage::Kind kind, const std::vector<std::byte>& bytes) {
  return MembershipMessage{kGroup, kind, bytes}.encode();
}

FuzzSeeds seeds() {
  using Kind = ConsensusMessageKind;
  const Decision all = decision_of({1, 2, 3, 4}, {});
  const Decision without = decision_of({1, 2, 3}, {{3, LostMember::Cause::kDied}});
  Decision grown = all;
  grown.newcomers = {{5, "entry"}};
  grown.members.push_back(5);
  grown.needs_rendezvous = true;
  Decision joined = decision_of({2, 3, 4, 1}, {});
  joined.survivor_count = 3;
  joined.newcomers = {{1, "entry"}};
  joined.needs_rendezvous = true;
  const auto message = [](FuzzSeed& out, ProcessId from, const std::vector<std::byte>& bytes) {
    out.byte(kMessage).byte(static_cast<uint8_t>(from)).piece(bytes);
  };
  FuzzSeeds out;
  for (const Decision* value : std::initializer_list<const Decision*>{&all, &without, &grown}) {
    const auto decides = [&](ConsensusMessage& one) { one.decision = *value; };
    const auto promises = [&](ConsensusMessage& one) {
      one.info = PromiseInfo{3, "127.0.0.1:2", true, "", value->newcomers, true, 0};
    };
    const auto begins = [&](ConsensusMessage& one) {
      one.generation = value->id();
      one.made_by = *value;
    };
    // Rank 0 proposes, and rank 1 takes part.
    FuzzSeed first;
    first.byte(0).byte(kBegin).byte(0);
    if (value == &without) first.byte(kDeath).byte(4);
    for (const ProcessId from : {2, 3, 4})
      message(first, from, message_of(Kind::kPromise, promises));
    first.byte(kVote).byte(0).piece({});
    for (const ProcessId from : {2, 3, 4}) message(first, from, message_of(Kind::kAccepted));
    first.byte(kTick).byte(0).byte(20);
    out.push_back(first.take());
    FuzzSeed second;
    second.byte(1);
    message(second, 2, message_of(Kind::kPrepare));
    message(second, 2, message_of(Kind::kAccept, decides));
    message(second, 2, message_of(Kind::kDecided, decides));
    message(second, 2, message_of(Kind::kBegun, begins));
    out.push_back(second.take());
  }
  FuzzSeed others;
  others.byte(2);
  for (const Kind kind : {Kind::kRefuse, Kind::kWait, Kind::kReport, Kind::kAsk, Kind::kInstalled})
    message(others, 2, message_of(kind, [](ConsensusMessage& one) { one.dead = {1, 3}; }));
  message(others, 3, body(MembershipMessage::Kind::kWithdrawn, {}));
  message(others, 5, body(MembershipMessage::Kind::kJoinRequest, Writer().put(uint64_t{9}).take()));
  message(others, 3,
          body(MembershipMessage::Kind::kVouched, Writer().put(kGroup).put(ProcessId{5}).take()));
  others.byte(kBytes).byte(2).piece(make_frame(FrameType::kMembership, message_of(Kind::kPrepare)));
  others.byte(kTick).byte(0).byte(255).byte(kGiveUp).byte(4);
  out.push_back(others.take());
  FuzzSeed newcomer;
  newcomer.byte(128).byte(kBegin).byte(0);
  Writer reached;
  reached.put(uint32_t{0}).put(uint64_t{9}).put(uint32_t{3});
  for (const ProcessId one : {2, 3, 4}) reached.put(one);
  message(newcomer, 2, body(MembershipMessage::Kind::kReached, reached.take()));
  message(newcomer, 2, message_of(Kind::kBegun, [&](ConsensusMessage& one) {
            one.generation = joined.id();
            one.made_by = joined;
          }));
  out.push_back(newcomer.take());
  return out;
}

}  // namespace membership_fuzz

const FuzzTarget kMembershipFuzz{"membership", "csrc/membership/", membership_fuzz::run,
                                 membership_fuzz::seeds};

}  // namespace ringdist::test
