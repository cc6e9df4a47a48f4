// One process' part in the consensus of one group. Connects a GenerationLog with the
// MembershipTransport and with the group's owner, the engine. The group keeps its id, which is the
// nonce of its first generation, through all generations.
//
// A newcomer has no GenerationLog at first. It sends join requests to the members that it has
// addresses of, and creates the log when a message names it as a member. Used on the membership
// thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/buffers.h"
#include "base/error.h"
#include "base/serialize.h"
#include "membership/membership_transport.h"
#include "membership/paxos/generation_log.h"

namespace ringdist {

// A message between two processes about the membership of one group, as MembershipTransport carries
// it. Encoding and decoding may be done on any thread.
struct MembershipMessage {
  // Kinds of messages, with the contents of their bodies.
  enum class Kind : uint8_t {
    kAgreement,  // a ConsensusMessage
    kWithdrawn,  // the sender takes no part in the group any more; no body
    // A newcomer wants to become a member. The body has the number that the receiver has sent to
    // it, or 0, and then its rank info.
    kJoinRequest,
    // A member answers a join request. The body has the number of its generation, a random number
    // that the newcomer repeats, and the ids of that generation's members.
    kReached,
    // A member vouches for a newcomer, which has repeated its number. It sends this to ranks 0 and
    // 1. The body has the nonce of its generation and the id of the newcomer.
    kVouched,
  };

  uint64_t group_id = 0;
  Kind kind = Kind::kAgreement;
  ConstBytes body;  // a view into the bytes that it was decoded from

  // Returns the wire format: group id, kind and body.
  std::vector<std::byte> encode() const {
    auto out = Writer().put(group_id).put(kind).take();
    out.insert(out.end(), body.begin(), body.end());
    return out;
  }
  // Returns the message in `bytes`, which must outlive it, or nothing if they are malformed.
  static std::optional<MembershipMessage> decode(ConstBytes bytes) {
    MembershipMessage out;
    Reader in(bytes);
    out.group_id = in.get<uint64_t>();
    out.kind = in.get<Kind>();
    if (!in.ok() || out.kind > Kind::kVouched) return std::nullopt;
    out.body = bytes.subspan(sizeof out.group_id + sizeof out.kind);
    return out;
  }
};

// A member's answer to a join request.
struct JoinAnswer {
  uint64_t number = 0;    // the newcomer has to repeat it; 0 if it gets no answer
  bool repeated = false;  // it has, so it can be reached at its address
};

// Environment of a GroupConsensus, which the engine implements. Called on the membership thread,
// one call at a time, with one exception. MembershipService calls address_of(), addresses() and
// accepts_joins() on other threads as well, under its lock. Calls must return quickly; only
// stop_and_report() may take a while.
class GroupConsensusDelegate {
 public:
  using VoteRead = std::function<void(const Result<std::optional<Accepted>>&)>;
  using VoteCast = std::function<void(bool)>;

  virtual ~GroupConsensusDelegate() = default;
  // Returns the address of a member of some generation, or of a process that has sent join
  // requests; nothing if there is none.
  virtual std::optional<PeerAddress> address_of(ProcessId process) = 0;
  // Returns the addresses of all these processes.
  virtual std::map<ProcessId, PeerAddress> addresses() = 0;
  // Returns true if processes that are no members may send join requests.
  virtual bool accepts_joins() = 0;
  // Called repeatedly for a process that wants to become a member, until it is one. The request has
  // `number`, and came over a connection of `from`.
  virtual JoinAnswer on_join_request(const Newcomer& newcomer, const MessageOrigin& from,
                                     uint64_t number) = 0;
  // On ranks 0 and 1: `member` of the present generation reaches the newcomer, and is reached by
  // it. Called repeatedly. Returns true if the next generation shall begin for the newcomer's sake.
  virtual bool on_vouched(ProcessId newcomer, ProcessId member) = 0;
  // On a newcomer: returns its rank info, which its join requests carry.
  virtual std::string entry() = 0;

  // These functions correspond to those of GenerationLogDelegate. The callback of a vote may run on
  // any thread, or never. On a newcomer on_installed() also reports that it has become a member.
  virtual PromiseInfo stop_and_report() = 0;
  virtual void read_vote(const GenerationId& generation, VoteRead then) = 0;
  virtual void cast_vote(const GenerationId& generation, const std::optional<Accepted>& before,
                         const Accepted& vote, VoteCast then) = 0;
  virtual void on_installed(const Decision& decision) = 0;
  virtual void on_begun() = 0;
  virtual void on_excluded(const Decision& decision) = 0;
};

// The generation with which the consensus starts.
struct InitialMembers {
  uint64_t nonce = 0;              // group id
  std::vector<ProcessId> members;  // by rank; empty on a newcomer
};

// Consensus of one group, as MembershipService holds it. Each input function sets the time for the
// messages that it sends.
class GroupConsensus final : private GenerationLogDelegate {
 public:
  // Runs a task on the membership thread, if this object still exists then. Any thread.
  using RunLater = std::function<void(std::function<void(GroupConsensus&, TimePoint)>)>;

  // The object keeps `owner` alive; `post` must outlive the object.
  GroupConsensus(ProcessId self, const InitialMembers& origin, const PaxosTimeouts& timeouts,
                 MembershipTransport& post, std::shared_ptr<GroupConsensusDelegate> owner,
                 RunLater later);

  // Starts the agreement on the next generation. On a newcomer: sends a join request.
  void begin(TimePoint now);
  // Does the same if `generation` still is the present one, and always on a newcomer. A caller of
  // this process wants the generation after it.
  void begin_after(uint32_t generation, TimePoint now);
  // Takes in a message. The caller has compared its origin with the addresses of that process.
  void on_message(const MessageOrigin& origin, const MembershipMessage& message, TimePoint now);
  // These two do as in GenerationLog. A newcomer records it for the time when it is a member.
  void on_death(ProcessId process, TimePoint now);
  void give_up(ProcessId process, TimePoint now);
  // Returns when tick() has something to do next; nothing if it waits for messages only.
  std::optional<TimePoint> next() const;
  // Repeats messages that may have been lost. While an agreement is under way it also watches the
  // members of this host for their ends.
  void tick(TimePoint now);
  // Returns why there is no next generation yet, or why a newcomer is no member yet.
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
  // Creates the GenerationLog of a newcomer. Returns false if `message` does not make it a member,
  // or does not come from another member of that generation.
  bool become_member(ProcessId from, const ConsensusMessage& message, TimePoint now);
  // Sends a join request to all processes that this newcomer has addresses of.
  void request_join(TimePoint now);
  void on_join_request(const MessageOrigin& from, ConstBytes body, TimePoint now);
  // Reports to ranks 0 and 1 that this member reaches the newcomer.
  void vouch(ProcessId newcomer, TimePoint now);
  void on_vouched(ProcessId from, ConstBytes body, TimePoint now);
  // On ranks 0 and 1: counts that `member` vouches for the newcomer.
  void count_vouch(ProcessId newcomer, ProcessId member, TimePoint now);
  // Handles the answer of a member to a join request. The next requests repeat its number.
  void on_reached(ProcessId from, ConstBytes body, TimePoint now);
  // Counts the members of the latest generation, as answers name it, that have answered.
  size_t reached() const;
  bool is_reached_by_all() const { return !to_reach_.empty() && reached() == to_reach_.size(); }
  // Sends `message` to `to`. The result and `certain` are those of MembershipTransport::send().
  bool send_message(ProcessId to, const ConsensusMessage& message, bool certain);
  // Watches all members of this host, so that the ends of their processes are reported.
  void watch(TimePoint now);

  const ProcessId self_;
  const uint64_t nonce_;
  const PaxosTimeouts timeouts_;
  MembershipTransport& transport_;
  const std::shared_ptr<GroupConsensusDelegate> delegate_;
  const RunLater later_;
  TimePoint now_;                               // time of the input that is being handled
  std::unique_ptr<GenerationLog> generations_;  // null on a newcomer
  TimePoint join_request_at_{};                 // next join request
  int attempts_ = 0;                            // number of join requests sent
  std::map<ProcessId, uint64_t> numbers_;       // by sender of the answer, of any generation
  // Latest generation that an answer has named, and its members.
  std::optional<uint32_t> reached_in_;
  std::vector<ProcessId> to_reach_;
  // Reports that a newcomer passes to its GenerationLog once it has one.
  std::vector<ProcessId> dead_;
  std::vector<ProcessId> given_up_;
};

}  // namespace ringdist
