// One process' view of a group's membership over time: the present generation, the agreement on the
// next one, and past decisions, for members that have not received them. A state machine without
// threads or I/O, as PaxosInstance is. Not thread-safe.
//
// A decision takes three steps. It is *decided* on its proposer. Then each survivor *installs* it.
// The generation has *begun* once all survivors have done so. Ops and newcomers wait for that,
// because a decision that no living process has installed may still be replaced by another one.
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

// Environment of a GenerationLog: messages, the store's vote, and notifications about generations.
// Called from within the functions of the GenerationLog, on its thread.
class GenerationLogDelegate {
 public:
  virtual ~GenerationLogDelegate() = default;
  // Sends `message`. Messages to one process arrive in the order of the calls, or are lost.
  virtual void send(ProcessId to, const ConsensusMessage& message) = 0;
  // Returns true if `process` is on this host, so that the kernel reports its death.
  virtual bool is_near(ProcessId process) = 0;
  // Sends `message` to a process of this host. Returns true if the kernel has it, so that the other
  // process can read it even if this process dies. Returns false if that failed; the GenerationLog
  // tries again later.
  virtual bool send_near(ProcessId to, const ConsensusMessage& message) = 0;
  // These three are the functions of PaxosDelegate, for the present generation.
  virtual PromiseInfo stop_and_report() = 0;
  virtual void read_vote(const Ballot& ballot) = 0;
  virtual void cast_vote(const Ballot& ballot, const std::optional<Accepted>& before,
                         const Accepted& vote) = 0;

  // This process is a member of the new generation `decision`. No op of it may begin yet.
  virtual void on_installed(const Decision& decision) = 0;
  // All survivors have installed the present generation, so its ops may begin. If stop_and_report()
  // was called for the generation that follows, none does.
  virtual void on_begun() = 0;
  // The others continue without this process. The GenerationLog does nothing more for the group
  // than report past decisions.
  virtual void on_excluded(const Decision& decision) = 0;
};

// Sequence of generations of one group, as seen by one member. Runs one PaxosInstance at a time,
// installs its decision, and notifies the delegate.
class GenerationLog final : private PaxosDelegate {
 public:
  // Starts with a generation that has begun. `self` is one of `members`, which are ordered by rank.
  // `delegate` must outlive the object.
  GenerationLog(ProcessId self, const GenerationId& generation, std::vector<ProcessId> members,
                const PaxosTimeouts& timeouts, GenerationLogDelegate& delegate);
  // Creates the object for a newcomer, from the first message that names it as a member. The caller
  // passes that message to on_message() afterwards. Returns null if the message does not make
  // `self` a member.
  static std::unique_ptr<GenerationLog> admitted(ProcessId self, const ConsensusMessage& message,
                                                 const PaxosTimeouts& timeouts,
                                                 GenerationLogDelegate& delegate, TimePoint now);

  // In kInstalled, survivors are still installing the present generation. In kBegun its ops may
  // run. In kExcluded the others continue without this process.
  enum class State : uint8_t { kInstalled, kBegun, kExcluded };
  State state() const { return state_; }
  const GenerationId& generation() const { return generation_; }
  const std::vector<ProcessId>& members() const { return members_; }

  // Starts the agreement on the next generation, because a caller of this process wants it.
  void begin(TimePoint now);
  // Takes in a message of any generation. A request for a past generation is answered with its
  // decision. If the message is for a later one, its sender is queried for the missing decision.
  void on_message(ProcessId from, const ConsensusMessage& message, TimePoint now);
  // Records that the kernel of this host has reported the death of `process`. The caller must have
  // taken in all messages that it had sent to this process. Also called for a process that ended
  // before this one could watch it.
  void on_death(ProcessId process, TimePoint now);
  // Records that the control plane has given `process` up, or that it has left. It can be no member
  // of a later generation, and its messages are ignored except for decisions. This is no proof of
  // its death.
  void give_up(ProcessId process, TimePoint now);
  // Answers to read_vote() and cast_vote() of the delegate. Answers for a generation that has
  // passed are ignored.
  void on_vote_read(const GenerationId& generation, const Ballot& ballot,
                    const Result<std::optional<Accepted>>& vote, TimePoint now);
  void on_vote_cast(const GenerationId& generation, const Ballot& ballot, bool cast, TimePoint now);
  // Returns when tick() has something to do next; nothing if it waits for messages only.
  std::optional<TimePoint> next() const;
  // Repeats messages that may have been lost and advances the agreement.
  void tick(TimePoint now);

  // Returns why there is no next generation yet, for an error message.
  std::string describe(TimePoint now) const { return paxos_->describe(now); }

 private:
  // A generation that has ended for this process, and the decision that ended it.
  struct PastGeneration {
    GenerationId generation;
    Ballot ballot;  // ballot as of which this process learned the decision
    Decision decision;
  };

  // Returns `message` with the fields that identify the generation. For a newcomer it adds the
  // decision that created the generation.
  ConsensusMessage addressed(int rank, ConsensusMessage message) const;
  // PaxosDelegate
  void send(int rank, ConsensusMessage message) override;
  PromiseInfo stop_and_report() override { return delegate_.stop_and_report(); }
  void read_vote(const Ballot& ballot) override { delegate_.read_vote(ballot); }
  void cast_vote(const std::optional<Accepted>& before, const Accepted& vote) override {
    delegate_.cast_vote(vote.ballot, before, vote);
  }

  // Returns true if `message` counts a process of this host as dead before this host's kernel has
  // reported that death here.
  bool is_ahead_of_its_dead(const ConsensusMessage& message);
  // Handles a message for the present generation.
  void on_own(ProcessId from, const ConsensusMessage& message, TimePoint now);
  // Answers a message for a past generation with its decision.
  void on_past(ProcessId from, const PastGeneration& past, const ConsensusMessage& message);
  // On rank 0: records that `rank` has installed the present generation.
  void on_installed(int rank);
  // Installs the decision of the agreement, if there is one, and those that follow from it.
  void apply_decision(TimePoint now);
  // Passes the decision on, then installs it. Returns false if it could not be passed on yet to
  // every process of this host; tick() tries again.
  bool install(const PaxosInstance::Decided& decided, TimePoint now);
  // Makes the generation that `made_by` created the present one.
  void enter(const Decision& made_by, TimePoint now);
  // Sends the decision to other members. Returns true if each process of this host can read it even
  // if this process dies.
  bool tell_decided(const PaxosInstance::Decided& decided);
  // Reports to rank 0 that this process has installed the present generation.
  void tell_installed(TimePoint now);
  // On rank 0: returns true if newcomers of the present generation still have to be notified.
  bool lacks_newcomers() const;
  void begin_if_all_installed();
  // Starts the next agreement if the present generation can never begin.
  void begin_if_it_cannot(TimePoint now);
  // Handles kBegun from rank 0.
  void on_begun_told(TimePoint now);
  void become_begun();
  void send_begun(ProcessId to);
  const PastGeneration* find(const GenerationId& generation) const;
  int rank_of(ProcessId process) const { return ringdist::rank_of(process, members_); }
  // Returns true if `rank` is a newcomer of the present generation.
  bool is_newcomer(int rank) const {
    return made_by_ && rank >= static_cast<int>(made_by_->survivor_count);
  }
  // Creates the PaxosInstance for the generation after the present one.
  void make_agreement();

  const ProcessId self_;
  const PaxosTimeouts timeouts_;
  GenerationLogDelegate& delegate_;
  GenerationId generation_;
  std::vector<ProcessId> members_;
  State state_ = State::kBegun;
  std::unique_ptr<PaxosInstance> paxos_;  // agreement on the next generation; never null
  std::vector<PastGeneration> past_;      // oldest first
  std::vector<ProcessId> dead_;           // deaths that the kernel of this host reported
  std::vector<ProcessId> given_up_;       // by the control plane
  std::optional<Decision> made_by_;   // created the present generation, unless that is the first
  std::optional<RankSet> installed_;  // on rank 0: members that have installed it
  TimePoint installed_at_;
  // Next repetition of kInstalled, of kBegun to newcomers, or of kDecided inside the host.
  TimePoint resend_at_;
  // Messages that count a process of this host as dead before its kernel has reported that here.
  // They are handled after the next reported death.
  std::deque<std::pair<ProcessId, ConsensusMessage>> deferred_;
};

}  // namespace ringdist
