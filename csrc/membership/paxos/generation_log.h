// One process' side of a group's membership over time: the generation that it is in, the agreement
// on the next one, and what earlier ones decided, for those who have not heard. A state machine, as
// PaxosInstance. Not thread-safe.
//
// A decision takes these steps: it is *decided* (on its proposer), *installed* by each who stays,
// and the generation has *begun* once all who stay have installed it. Ops, and newcomers, wait for
// that: what nobody alive has installed may yet be decided otherwise.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "membership/paxos/consensus_message.h"
#include "membership/paxos/paxos_instance.h"
#include "membership/paxos/voter_tracker.h"

namespace ringdist {

class GenerationLogDelegate {
 public:
  virtual ~GenerationLogDelegate() = default;
  // In the order of the calls, or lost.
  virtual void send(ProcessId to, const ConsensusMessage& message) = 0;
  // On this host: the kernel tells of its death.
  virtual bool is_near(ProcessId process) = 0;
  // The same to one that is near. True: the kernel has it, and that process can read it when this
  // one has died. False: not now; it is tried again.
  virtual bool send_near(ProcessId to, const ConsensusMessage& message) = 0;
  // See PaxosDelegate. Of the present generation.
  virtual PromiseInfo stop_and_report() = 0;
  virtual void read_vote(const Ballot& ballot) = 0;
  virtual void cast_vote(const Ballot& ballot, const std::optional<Accepted>& before,
                         const Accepted& vote) = 0;

  // This process is a member of a new generation. No op of it yet.
  virtual void on_installed(const Decision& decision) = 0;
  // Perhaps after stop_and_report() for the generation that follows: then no op begins.
  virtual void on_begun() = 0;
  // The others go on without this process; it does nothing more in the group.
  virtual void on_excluded(const Decision& decision) = 0;
};

class GenerationLog final : private PaxosDelegate {
 public:
  // Of a generation that has begun. `self` is one of `members`, which are in the order of their
  // ranks.
  GenerationLog(ProcessId self, const GenerationId& generation, std::vector<ProcessId> members,
                const PaxosTimeouts& timeouts, GenerationLogDelegate& delegate);
  // Of a newcomer, by the first message that names it as a member, which on_message() gets next;
  // nothing if this one does not.
  static std::unique_ptr<GenerationLog> admitted(ProcessId self, const ConsensusMessage& message,
                                                 const PaxosTimeouts& timeouts,
                                                 GenerationLogDelegate& delegate, TimePoint now);

  enum class State : uint8_t { kInstalled, kBegun, kExcluded };
  State state() const { return state_; }
  const GenerationId& generation() const { return generation_; }
  const std::vector<ProcessId>& members() const { return members_; }

  // Someone here wants the next generation.
  void begin(TimePoint now);
  void on_message(ProcessId from, const ConsensusMessage& message, TimePoint now);
  // The kernel of this host reports it, and all that it had sent to this process was taken in; also
  // of a process that had ended before this one could watch it.
  void on_death(ProcessId process, TimePoint now);
  void suspect(ProcessId process);
  // The control plane has given it up, or it has left: it can be no member of a later generation,
  // and nothing that it says counts but what it knows to be decided. No proof of its death.
  void give_up(ProcessId process, TimePoint now);
  void on_vote_read(const GenerationId& generation, const Ballot& ballot,
                    const Result<std::optional<Accepted>>& vote, TimePoint now);
  void on_vote_cast(const GenerationId& generation, const Ballot& ballot, bool cast, TimePoint now);
  std::optional<TimePoint> next() const;
  void tick(TimePoint now);

  // Why there is no next generation yet.
  std::string describe(TimePoint now) const { return paxos_->describe(now); }

 private:
  struct PastGeneration {
    GenerationId generation;
    Ballot ballot;  // as of which it was decided here
    Decision decision;
  };

  ConsensusMessage addressed(int rank, ConsensusMessage message) const;
  void send(int rank, ConsensusMessage message) override;
  PromiseInfo stop_and_report() override { return delegate_.stop_and_report(); }
  void read_vote(const Ballot& ballot) override { delegate_.read_vote(ballot); }
  void cast_vote(const std::optional<Accepted>& before, const Accepted& vote) override {
    delegate_.cast_vote(vote.ballot, before, vote);
  }

  bool is_ahead_of_its_dead(const ConsensusMessage& message);
  void on_own(ProcessId from, const ConsensusMessage& message, TimePoint now);
  void on_past(ProcessId from, const PastGeneration& past, const ConsensusMessage& message);
  void on_installed(int rank);
  void apply_decision(TimePoint now);
  // False: not yet.
  bool install(const PaxosInstance::Decided& decided, TimePoint now);
  void enter(const Decision& made_by, TimePoint now);
  bool tell_decided(const PaxosInstance::Decided& decided);
  void tell_installed(TimePoint now);
  bool lacks_newcomers() const;
  void begin_if_all_installed();
  void begin_if_it_cannot(TimePoint now);
  void on_begun_told(TimePoint now);
  void become_begun();
  void send_begun(ProcessId to);
  const PastGeneration* find(const GenerationId& generation) const;
  int rank_of(ProcessId process) const { return ringdist::rank_of(process, members_); }
  // Of the present generation.
  bool is_newcomer(int rank) const {
    return made_by_ && rank >= static_cast<int>(made_by_->survivor_count);
  }
  void make_agreement();

  const ProcessId self_;
  const PaxosTimeouts timeouts_;
  GenerationLogDelegate& delegate_;
  GenerationId generation_;
  std::vector<ProcessId> members_;
  State state_ = State::kBegun;
  std::unique_ptr<PaxosInstance> paxos_;
  std::vector<PastGeneration> past_;
  std::vector<ProcessId> dead_;  // as the kernel of this host reported
  std::vector<ProcessId> given_up_;
  std::optional<Decision> made_by_;   // the present generation; nothing: it is the first
  std::optional<RankSet> installed_;  // on rank 0: who has
  TimePoint installed_at_;
  TimePoint resend_at_;  // of kInstalled, kBegun to newcomers, kDecided to those near
  // What names deaths of this host that its kernel has yet to report here.
  std::deque<std::pair<ProcessId, ConsensusMessage>> deferred_;
};

}  // namespace ringdist
