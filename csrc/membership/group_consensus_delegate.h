// What a Lineage needs of the group that it is about, which the engine has.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/error.h"
#include "membership/paxos/generation_log.h"
#include "membership/peer_address.h"

namespace ringdist {

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

}  // namespace ringdist
