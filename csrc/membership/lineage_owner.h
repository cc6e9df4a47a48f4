// What a Lineage needs of the group that it is about, which the engine has.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "base/error.h"
#include "consensus/generations.h"
#include "membership/recipient.h"

namespace ringdist {

// On the membership thread, one call at a time. Only freeze() may take a while.
class LineageOwner {
 public:
  using VoteRead = std::function<void(const Result<std::optional<Accepted>>&)>;
  using VoteCast = std::function<void(bool)>;

  virtual ~LineageOwner() = default;
  // Of a member of some generation.
  virtual std::optional<Recipient> recipient(ProcessId process) = 0;
  virtual std::map<ProcessId, Recipient> recipients() = 0;
  // As of GenerationsHost; of answers any thread tells, or nobody.
  virtual Standing freeze() = 0;
  virtual void read_vote(const GenerationId& generation, VoteRead then) = 0;
  virtual void cast_vote(const GenerationId& generation, const std::optional<Accepted>& before,
                         const Accepted& vote, VoteCast then) = 0;
  virtual void on_installed(const Decision& decision) = 0;
  virtual void on_begun() = 0;
  virtual void on_excluded(const Decision& decision) = 0;
};

}  // namespace ringdist
