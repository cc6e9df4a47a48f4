// GroupMembership: the membership of one group, over all its generations, in this process. It takes
// part in the group's consensus and creates the groups of the generations that the members have
// agreed on. The Communicators of all generations share it. That of a newcomer begins with the
// generation that admits it.
//
// The GroupConsensusDelegate functions are called on the membership thread; all others on any
// thread.
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

#include "base/error.h"
#include "base/thread_annotations.h"
#include "engine/bootstrap/communicator_options.h"
#include "engine/bootstrap/store_bootstrap.h"
#include "engine/context/context.h"
#include "engine/membership/active_store.h"
#include "engine/membership/address_book.h"
#include "engine/membership/generation_history.h"
#include "engine/membership/group_advertisement.h"
#include "engine/membership/join_acceptor.h"
#include "membership/group_consensus.h"

namespace ringdist {

// The group of one generation, for the generations after it. Any thread.
class GenerationDelegate {
 public:
  virtual ~GenerationDelegate() = default;
  // Fails the group here without a notice to other ranks. Returns the number of the first
  // collective that is unfinished here.
  virtual uint64_t stop_and_report(const Error& cause) = 0;
};

// Membership of a group in this process. Held by shared_ptr: Communicators, pending tasks and the
// membership service use it.
class GroupMembership final : public GroupConsensusDelegate,
                              public std::enable_shared_from_this<GroupMembership> {
 public:
  // Names the generation that a group is.
  struct GenerationRef {
    // Null: the group may get one when its members are set.
    std::shared_ptr<GroupMembership> membership;
    uint32_t number = 0;
  };
  // A group of a later generation, under both of its interfaces.
  struct Made {
    std::shared_ptr<Communicator> group;
    std::shared_ptr<GenerationDelegate> generation;  // the same object as `group`
  };
  // Creates a group. May run on any thread, also after the call that it was given to has returned.
  using MakeGroup = std::function<Result<Made>(CommunicatorOptions options,
                                               const NextGroupSpec& prospect, GenerationRef place)>;

  // Returns true if a group of those members can have later generations: each rank has to be a
  // process of its own.
  static bool can_have(const ResolvedGroup& found);

  // Makes the membership of a group's first generation. `first` is its group.
  GroupMembership(Context& context, const CommunicatorOptions& options, const ResolvedGroup& found,
                  std::weak_ptr<GenerationDelegate> first);
  // Makes the membership of a newcomer; `entry` and `options` are its own.
  GroupMembership(Context& context, const CommunicatorOptions& options,
                  const GroupAdvertisement& advertisement, const RankInfo& entry);

  // Registers with the membership service. From then on this process takes part in the consensus,
  // or sends join requests if it is a newcomer.
  void register_group();
  // Reports that the group of a generation is destroyed here. Ignored if the group of a later one
  // was made since, or if that group was never the one in use.
  void leave(uint32_t generation);

  // Returns the last generation of which a group was created.
  uint32_t last_made() {
    std::lock_guard lock(mutex_);
    return made_;
  }
  // Starts consensus on the generation after `after`, waits until one has begun, and creates its
  // group. Blocks until `deadline` at most; while it creates the group, until `limit`. Errors:
  // those of Communicator::shrink().
  Result<ShrinkResult> next(uint32_t after, TimePoint deadline, TimePoint limit,
                            const MakeGroup& make);

  // Takes a task that has to wait until the members of the last generation have found each other,
  // as no other group monitors them until then. It runs when they have, or when this process has
  // left. Returns false if there is no need to wait.
  bool defer(std::function<void()> task);
  // Returns the process of a rank if `generation` is the present one, else 0.
  ContextId member(uint32_t generation, int rank) const {
    std::lock_guard lock(mutex_);
    const auto members = present_.found.contexts();
    const auto at = static_cast<size_t>(rank);
    return present_.number == generation && at < members.size() ? members[at] : 0;
  }
  // Reports that this rank has found all members of a generation.
  void formed(uint32_t generation, const ResolvedGroup& found);

  const std::shared_ptr<JoinAcceptor>& join_acceptor() const { return join_acceptor_; }
  uint64_t group_id() const { return group_id_; }
  // Adds the addresses of the members in an advertisement. For newcomers.
  void update_members(const GroupAdvertisement& advertisement);
  // Creates the group of the generation that admits this newcomer. Returns nothing if there is none
  // at `until`. Errors are final.
  std::optional<Result<ShrinkResult>> await_admission(TimePoint until, const MakeGroup& make);

 private:
  // A generation that this process has installed.
  struct Generation {
    uint32_t number = 0;
    // Until `formed`, it lacks topology, processes and transports.
    ResolvedGroup found;
    bool needs_rendezvous = false;  // see NextGroupSpec
    int survivor_count = 0;
    bool formed = false;  // the addresses of all members have been found
    std::weak_ptr<GenerationDelegate> group;
    bool begun = false;  // its survivors have all installed it
    // Consensus on the next one has begun, so no group of this one is created any more.
    bool frozen = false;
    // Promise info that was given for this generation; it must not change.
    std::optional<PromiseInfo> info;
  };
  // GroupConsensusDelegate
  std::optional<PeerAddress> address_of(ProcessId process) override { return book_->find(process); }
  std::map<ProcessId, PeerAddress> addresses() override { return book_->all(); }
  bool accepts_joins() override { return join_acceptor_->admits(); }
  JoinAnswer on_join_request(const Newcomer& newcomer, const MessageOrigin& from,
                             uint64_t number) override;
  bool on_vouched(ProcessId newcomer, ProcessId member) override;
  std::string entry() override { return entry_; }
  PromiseInfo stop_and_report() override;
  void read_vote(const GenerationId& generation, VoteRead then) override;
  void cast_vote(const GenerationId& generation, const std::optional<Accepted>& before,
                 const Accepted& vote, VoteCast then) override;
  void on_installed(const Decision& decision) override;
  void on_begun() override;
  void on_excluded(const Decision& decision) override;

  // Returns true if a group of the present generation can be created for a caller that has `after`.
  bool may_make(uint32_t after) const RINGDIST_REQUIRES(mutex_) {
    return present_.number > after && present_.begun && !present_.frozen &&
           present_.number != unusable_;
  }
  // Runs the deferred tasks, on the pool.
  void release() RINGDIST_REQUIRES(mutex_);
  // Lets newcomers join the present generation, once it has begun and formed.
  void receive() RINGDIST_REQUIRES(mutex_);
  // Adds a decision to the history, and logs it.
  void add_step(const Decision& decision) RINGDIST_REQUIRES(mutex_);
  // Returns the generation that a decision makes.
  Generation made_by(const Decision& decision) const RINGDIST_REQUIRES(mutex_);
  // Returns the options of a generation's group. May open the store, which blocks.
  Result<CommunicatorOptions> options_of(const Generation& generation);
  // Returns why no later generation is possible for a caller that has `after`; else success.
  Error over(uint32_t after) const RINGDIST_REQUIRES(mutex_);
  // Returns the result for a caller that has `after`, without the group.
  ShrinkResult report(uint32_t after) const RINGDIST_REQUIRES(mutex_);
  // Creates the group of the present generation. Returns nothing if a further generation is needed.
  std::optional<Result<ShrinkResult>> make_present(uint32_t after, TimePoint limit,
                                                   const MakeGroup& make);
  // Handles a failure to create the group of `next`. If the store is to blame, starts consensus on
  // a further generation and returns nothing.
  std::optional<Result<ShrinkResult>> cannot_make(const Generation& next, Error error);
  // Returns the error for a consensus that a caller which has `after` did not see in time.
  Error no_agreement(uint32_t after);

  Context& context_;                   // used by the Communicators, too
  const CommunicatorOptions options_;  // for the first generation
  const uint64_t group_id_;
  const std::vector<ContextId> first_members_;  // empty for a newcomer
  const std::string entry_;                     // encoded rank info of a newcomer

  ActiveStore store_;
  const std::shared_ptr<AddressBook> book_ = std::make_shared<AddressBook>();
  const std::shared_ptr<JoinAcceptor> join_acceptor_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Generation present_ RINGDIST_GUARDED_BY(mutex_);
  // The last generation of which a group was created.
  uint32_t made_ RINGDIST_GUARDED_BY(mutex_) = 0;
  uint32_t unusable_ RINGDIST_GUARDED_BY(mutex_) =
      0;  // the last generation of which no group could be created; a further one is needed
  Error unusable_because_ RINGDIST_GUARDED_BY(mutex_);
  bool renumbered_ RINGDIST_GUARDED_BY(mutex_) =
      false;  // newcomers have no rank in the first generation, so ranks are counted anew
  std::optional<Decision> admitted_by_ RINGDIST_GUARDED_BY(mutex_);  // for a newcomer
  std::vector<std::function<void()>> deferred_ RINGDIST_GUARDED_BY(mutex_);
  bool left_ RINGDIST_GUARDED_BY(mutex_) = false;
  GenerationHistory steps_ RINGDIST_GUARDED_BY(mutex_);
  // The generation that excludes this process.
  std::optional<uint32_t> excluded_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist
