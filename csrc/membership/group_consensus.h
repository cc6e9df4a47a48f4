// One rank's side of a group's generations, one after the other: its GenerationLog with the post
// and the group's owner as its host. Named by the nonce of the first generation. A candidate is no
// member yet: it knocks at those it knows, and has GenerationLog when it is told that it is one.
// The membership thread's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/buffers.h"
#include "base/error.h"
#include "base/serialize.h"
#include "membership/membership_transport.h"
#include "membership/paxos/generation_log.h"

namespace ringdist {

// What processes say to each other about a group's membership. Bytes on the wire; any thread.
struct MembershipMessage {
  enum class Kind : uint8_t {
    kAgreement,    // a ConsensusMessage
    kWithdrawn,    // the sender has no part in the group any more; no body
    kJoinRequest,  // the sender wants to become a member: a generation whose members have all
                   // answered it, or kNoGeneration; its entry
    kReached,  // a member has that knock, and its answer has come: its generation, whose members
  };

  static constexpr uint32_t kNoGeneration = ~uint32_t{0};

  uint64_t group_id = 0;
  Kind kind = Kind::kAgreement;
  ConstBytes body;  // of what it was decoded from

  std::vector<std::byte> encode() const {
    auto out = Writer().put(group_id).put(kind).take();
    out.insert(out.end(), body.begin(), body.end());
    return out;
  }
  static std::optional<MembershipMessage> decode(ConstBytes bytes) {
    MembershipMessage out;
    Reader in(bytes);
    out.group_id = in.get<uint64_t>();
    out.kind = in.get<Kind>();
    if (!in.ok() || out.kind > Kind::kReached) return std::nullopt;
    out.body = bytes.subspan(sizeof out.group_id + sizeof out.kind);
    return out;
  }
};

// What a Lineage needs of the group that it is about, which the engine has.

// On the membership thread, one call at a time. Only stop_and_report() may take a while.
class GroupConsensusDelegate {
 public:
  using VoteRead = std::function<void(const Result<std::optional<Accepted>>&)>;
  using VoteCast = std::function<void(bool)>;

  virtual ~GroupConsensusDelegate() = default;
  // Of a member of some generation, or one that knocks.
  virtual std::optional<PeerAddress> recipient(ProcessId process) = 0;
  virtual std::map<ProcessId, PeerAddress> recipients() = 0;
  // Processes that are no members may knock.
  virtual bool accepts_joins() = 0;
  // Called now and again for a process that wants to become a member, until it is one. It reports
  // that all members of the generation `reached` reach it, and it them. Returns true if the next
  // generation shall begin for its sake.
  virtual bool on_join_request(const Newcomer& newcomer, uint32_t reached) = 0;
  // Of a candidate, that wants to become one: its entry, with which it knocks.
  virtual std::string entry() = 0;

  // As of GenerationLogDelegate; of answers any thread tells, or nobody. A candidate that has
  // become a member is told on_installed(), too.
  virtual PromiseInfo stop_and_report() = 0;
  virtual void read_vote(const GenerationId& generation, VoteRead then) = 0;
  virtual void cast_vote(const GenerationId& generation, const std::optional<Accepted>& before,
                         const Accepted& vote, VoteCast then) = 0;
  virtual void on_installed(const Decision& decision) = 0;
  virtual void on_begun() = 0;
  virtual void on_excluded(const Decision& decision) = 0;
};

// Where a lineage begins.
struct InitialMembers {
  uint64_t nonce = 0;
  std::vector<ProcessId> members;  // by rank; of a candidate none
};

class GroupConsensus final : private GenerationLogDelegate {
 public:
  // Runs a task on the membership thread if the lineage is still there then; any thread.
  using RunLater = std::function<void(std::function<void(GroupConsensus&, TimePoint)>)>;

  GroupConsensus(ProcessId self, const InitialMembers& origin, const PaxosTimeouts& timeouts,
                 MembershipTransport& post, std::shared_ptr<GroupConsensusDelegate> owner,
                 RunLater later);

  void begin(TimePoint now);
  // Of the generation after that one, if it is still the present one: somebody wants it.
  void begin_after(uint32_t generation, TimePoint now);
  void on_letter(ProcessId from, const MembershipMessage& letter, TimePoint now);
  void on_death(ProcessId process, TimePoint now);
  void give_up(ProcessId process, TimePoint now);
  std::optional<TimePoint> next() const;
  // Also has the ends of those told who are near, while something is to be decided.
  void tick(TimePoint now);
  std::string describe(TimePoint now) const;

 private:
  // GenerationLogDelegate
  void send(ProcessId to, const ConsensusMessage& message) override;
  bool is_near(ProcessId process) override;
  bool send_near(ProcessId to, const ConsensusMessage& message) override;
  PromiseInfo stop_and_report() override { return delegate_->stop_and_report(); }
  void read_vote(const Ballot& ballot) override;
  void cast_vote(const Ballot& ballot, const std::optional<Accepted>& before,
                 const Accepted& vote) override;
  void on_installed(const Decision& decision) override { delegate_->on_installed(decision); }
  void on_begun() override { delegate_->on_begun(); }
  void on_excluded(const Decision& decision) override { delegate_->on_excluded(decision); }

  void on_agreement(ProcessId from, const ConsensusMessage& message, TimePoint now);
  // False: the message does not make it a member.
  bool become_member(const ConsensusMessage& message, TimePoint now);
  void request_join(TimePoint now);
  void on_join_request(ProcessId from, ConstBytes body, TimePoint now);
  // A member reaches this candidate, which is let in once all members do.
  void on_reached(ProcessId from, ConstBytes body, TimePoint now);
  // Counts the members of the latest known generation that have answered.
  size_t reached() const;
  bool is_reached_by_all() const { return !to_reach_.empty() && reached() == to_reach_.size(); }
  bool send_message(ProcessId to, const ConsensusMessage& message, bool certain);
  void watch(TimePoint now);

  const ProcessId self_;
  const uint64_t nonce_;
  const PaxosTimeouts timeouts_;
  MembershipTransport& transport_;
  const std::shared_ptr<GroupConsensusDelegate> delegate_;
  const RunLater later_;
  TimePoint now_;
  std::unique_ptr<GenerationLog> generations_;  // null: a candidate
  TimePoint join_request_at_{};
  int knocks_ = 0;
  std::set<ProcessId> reached_by_;  // members of any generation
  uint32_t reached_in_ = MembershipMessage::kNoGeneration;
  std::vector<ProcessId> to_reach_;  // the members of that generation
  // What a candidate has heard that it will have to know.
  std::vector<ProcessId> dead_;
  std::vector<ProcessId> given_up_;
};

}  // namespace ringdist
