// One rank's side of a group's generations, one after the other: its GenerationLog with the post
// and the group's owner as its host. Named by the nonce of the first generation. A candidate is no
// member yet: it knocks at those it knows, and has GenerationLog when it is told that it is one.
// The membership thread's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "membership/group_consensus_delegate.h"
#include "membership/membership_message.h"
#include "membership/membership_transport.h"
#include "membership/paxos/generation_log.h"

namespace ringdist {

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
