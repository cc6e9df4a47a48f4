// Fuzz target: messages and notices to a Group of three ranks that has ops under way.
#include "engine/group/members.h"
#include "fuzz/target.h"

namespace ringdist::test {
namespace group_fuzz {

// Rank 0 is under test. What the input sends comes from the contexts of the other ranks, from that
// of no rank, or from an unknown one (0).
constexpr int kRanks = 3;
constexpr int kMostCalls = 16;

enum Step : uint8_t { kMessage, kNotice, kCall, kPass, kDeliver, kGone, kSteps };

class World {
 public:
  void message(FuzzInput& input) {
    const ContextId from = input.byte() % (kRanks + 2);
    MessageHeader header{};
    const auto bytes = input.piece();
    const auto payload = input.piece();
    if (!parse_header(bytes, header)) return;
    const bool had_failed = static_cast<bool>(group().failure());
    const bool is_forged = from != 0 && header.source >= 0 && header.source < kRanks &&
                           from != Members::context(header.source);
    group().on_message(from, header, payload);
    check(!is_forged || had_failed || !group().failure(), "a forged message fails the group");
    members_[0].host.work(group());
  }
  void notice(FuzzInput& input) {
    const ContextId from = input.byte() % (kRanks + 2);
    auto notice = Notice::decode(input.piece());
    if (!notice) return;
    notice->from = from;
    group().on_notice(*notice);
    members_[0].host.work(group());
  }
  void call(uint8_t what) {
    if (++calls_ > kMostCalls) return;
    Member& member = members_[what / 8 % kRanks];
    const int peer = what / 32 % kRanks;
    if (what % 8 == 0) ops_.push_back(member.allreduce(ReduceOp::kMax));
    if (what % 8 == 1) ops_.push_back(member.allreduce());
    if (what % 8 == 2) ops_.push_back(member.barrier());
    if (what % 8 == 3) ops_.push_back(member.message(Envelope::kAnySource, /*sends=*/false));
    if (what % 8 == 4) ops_.push_back(member.message(peer, /*sends=*/false));
    if (what % 8 == 5) ops_.push_back(member.message(peer, /*sends=*/true));
  }
  void step(uint8_t step, FuzzInput& input) {
    if (step == kMessage) message(input);
    if (step == kNotice) notice(input);
    if (step == kCall) call(input.byte());
    if (step == kPass) members_[0].pass(Milliseconds(10) * input.byte());
    if (step == kDeliver) members_.deliver();
    if (step == kGone) group().process_lost(Members::context(input.byte() % kRanks), kKilled);
  }
  // The group's failure ends all of its ops.
  void end() {
    (void)group().dump();
    (void)group().status();
    for (int rank = 0; rank < kRanks; ++rank) {
      Member& member = members_[rank];
      member.group.fail(Error(ErrorKind::kAborted, "the end"), /*tell_others=*/false);
      member.host.work(member.group);
    }
    for (const auto& op : ops_) check(op->finished(), "an op outlives its group");
  }
  Member& operator[](int rank) { return members_[rank]; }

 private:
  Group& group() { return members_[0].group; }

  Members members_{kRanks};
  std::vector<std::shared_ptr<Op>> ops_;
  int calls_ = 0;
};

bool run(ConstBytes bytes) { return run_steps<World>(bytes, kSteps); }

// Records the messages and notices that two ranks send to rank 0.
std::vector<std::byte> recorded(uint8_t what, bool is_called_late) {
  FuzzSeed out;
  World world;
  const auto call = [&](int rank) { return static_cast<uint8_t>(what + 8 * rank); };
  if (!is_called_late) out.byte(kCall).byte(call(0));
  for (const int rank : {0, 1, 2}) world.call(call(rank));
  for (const int rank : {1, 2}) {
    const auto context = static_cast<uint8_t>(Members::context(rank));
    for (const auto& sent : world[rank].wire.sent[Members::context(0)])
      out.byte(kMessage).byte(context).piece(sent.header).piece(sent.payload);
    world[rank].group.announce_leave(NoticeKind::kLeave);
    world[rank].pass(std::chrono::seconds(61));
    for (const Notice& notice : world[rank].host.flooded)
      out.byte(kNotice).byte(context).piece(notice.encode());
  }
  if (is_called_late) out.byte(kCall).byte(call(0));
  return out.byte(kPass).byte(60).byte(kDeliver).byte(kGone).byte(1).byte(kPass).byte(255).take();
}

FuzzSeeds seeds() {
  FuzzSeeds out;
  for (const uint8_t what : {0, 1, 2, 3, 4, 5})
    for (const bool is_late : {false, true}) out.push_back(recorded(what, is_late));
  return out;
}

}  // namespace group_fuzz

const FuzzTarget kGroupFuzz{"group", "csrc/engine/(group/|op/message)", group_fuzz::run,
                            group_fuzz::seeds};

}  // namespace ringdist::test
