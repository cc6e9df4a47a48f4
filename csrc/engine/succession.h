// The generations of a group as this process has them: what it tells the others when they decide on
// the next one, and the groups that are made of what was decided. Shared by the Communicators of
// the generations. The lineage calls it on the membership thread; the rest comes from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_annotations.h"
#include "engine/communicator_options.h"
#include "engine/context.h"
#include "engine/formation.h"
#include "engine/generation_group.h"
#include "engine/shrunk.h"
#include "engine/store_votes.h"
#include "membership/lineage_owner.h"

namespace ringdist {

class Succession final : public LineageOwner, public std::enable_shared_from_this<Succession> {
 public:
  // Of a group that is made.
  struct Place {
    std::shared_ptr<Succession> succession;  // null: it may have one when it has formed
    uint32_t number = 0;
  };
  using MakeNext = std::function<Result<std::shared_ptr<GenerationGroup>>(
      CommunicatorOptions options, const FoundGroup& found, Place place)>;

  // Whether a group of those can have later generations: of several ranks, each its own process.
  static bool can_have(const FoundGroup& found);

  // Of the first generation, `first` being its group.
  Succession(Context& context, const CommunicatorOptions& options, const FoundGroup& found,
             std::weak_ptr<GenerationGroup> first);

  // From now on this process answers for the group.
  void enroll();
  // The group of that generation is destroyed here; that of a later one, if there is any, is not.
  void leave(uint32_t generation);

  // The last generation of which a group was made.
  uint32_t last_made() {
    std::lock_guard lock(mutex_);
    return made_;
  }
  // Has the group made of the next generation that begins after that one, which the others are
  // asked for; `group` of the outcome is not set. Errors: as of Communicator::shrink().
  Result<Shrunk> next(uint32_t after, TimePoint deadline, const MakeNext& make);

 private:
  // A generation that this process has installed.
  struct Generation {
    uint32_t number = 0;
    FoundGroup found;
    std::weak_ptr<GenerationGroup> group;
    bool begun = false;
    bool frozen = false;  // for the one that follows: no group is made of it any more
    std::optional<Standing> standing;
  };
  // What led to a generation.
  struct Step {
    Decision decision;
    std::vector<ProcessId> before;  // the members that decided, by rank
    std::vector<std::string> where;
    std::string store;  // the address of the one before
  };

  // LineageOwner
  std::optional<Recipient> recipient(ProcessId process) override;
  std::map<ProcessId, Recipient> recipients() override {
    std::lock_guard lock(mutex_);
    return recipients_;
  }
  Standing freeze() override;
  void read_vote(const GenerationId& generation, VoteRead then) override;
  void cast_vote(const GenerationId& generation, const std::optional<Accepted>& before,
                 const Accepted& vote, VoteCast then) override;
  void on_installed(const Decision& decision) override;
  void on_begun() override;
  void on_excluded(const Decision& decision) override;

  bool may_make(uint32_t after) const RINGDIST_REQUIRES(mutex_) {
    return present_.number > after && present_.begun && !present_.frozen;
  }
  std::string describe(const Step& step) const;
  CommunicatorOptions options_of(const Generation& generation) const;
  std::shared_ptr<StoreVotes> votes();
  // At that address; "": the one that the group began with.
  std::shared_ptr<StoreVotes> votes_at(const std::string& address) const;
  std::string offer_store() const;
  Error over(uint32_t after) const RINGDIST_REQUIRES(mutex_);
  std::optional<Result<Shrunk>> make_of(const Generation& next, uint32_t after,
                                        const MakeNext& make);
  Shrunk report(uint32_t after) const RINGDIST_REQUIRES(mutex_);
  Error no_agreement();

  Context& context_;                   // that of its Communicators, and of the membership thread
  const CommunicatorOptions options_;  // of the first generation
  const uint64_t lineage_;
  const std::vector<ContextId> first_members_;

  std::mutex mutex_;
  std::condition_variable changed_;
  Generation present_ RINGDIST_GUARDED_BY(mutex_);
  uint32_t made_ RINGDIST_GUARDED_BY(mutex_) = 0;  // the last of which a group was made
  std::string store_ RINGDIST_GUARDED_BY(mutex_);  // its address; "": that of the first generation
  std::shared_ptr<StoreVotes> votes_ RINGDIST_GUARDED_BY(mutex_);
  std::vector<Step> steps_ RINGDIST_GUARDED_BY(mutex_);
  std::map<ProcessId, Recipient> recipients_ RINGDIST_GUARDED_BY(mutex_);  // of all generations
  std::optional<uint32_t> excluded_ RINGDIST_GUARDED_BY(mutex_);           // from that generation
};

}  // namespace ringdist
