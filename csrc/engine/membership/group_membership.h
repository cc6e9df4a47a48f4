// The generations of a group as this process has them: what it tells the others when they decide on
// the next one, and the groups that are made of what was decided. Shared by the Communicators of
// the generations. A candidate's begins with the one that lets it in. The lineage calls it on the
// membership thread; the rest comes from any thread.
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

// The group of one generation, as those after it need it. Any thread.
class GenerationDelegate {
 public:
  virtual ~GenerationDelegate() = default;
  // Ends it here, with a failure that is told nobody; the first collective that has not ended well
  // here.
  virtual uint64_t stop_and_report(const Error& cause) = 0;
};

class GroupMembership final : public GroupConsensusDelegate,
                              public std::enable_shared_from_this<GroupMembership> {
 public:
  // Of a group that is made.
  struct GenerationRef {
    std::shared_ptr<GroupMembership> membership;  // null: it may have one when it has formed
    uint32_t number = 0;
  };
  struct Made {
    std::shared_ptr<Communicator> group;
    std::shared_ptr<GenerationDelegate> generation;  // the same
  };
  // Runs on any thread, also when the call that it was given to has returned.
  using MakeGroup = std::function<Result<Made>(CommunicatorOptions options,
                                               const NextGroupSpec& prospect, GenerationRef place)>;

  // Whether a group of those can have later generations: each rank is its own process.
  static bool can_have(const ResolvedGroup& found);

  // Of the first generation, `first` being its group.
  GroupMembership(Context& context, const CommunicatorOptions& options, const ResolvedGroup& found,
                  std::weak_ptr<GenerationDelegate> first);
  // Of a candidate; `entry` and `options` are its own.
  GroupMembership(Context& context, const CommunicatorOptions& options,
                  const GroupAdvertisement& invitation, const RankInfo& entry);

  // From now on this process answers for the group, or asks to become a member.
  void register_group();
  // The group of that generation is destroyed here; that of a later one, if there is any, is not.
  void leave(uint32_t generation);

  // The last generation of which a group was made.
  uint32_t last_made() {
    std::lock_guard lock(mutex_);
    return made_;
  }
  // Has the group made of the next generation that begins after that one, which the others are
  // asked for. Errors: as of Communicator::shrink().
  Result<ShrinkResult> next(uint32_t after, TimePoint deadline, const MakeGroup& make);

  // While the members of the last generation look for each other nobody would watch them: false, or
  // the task is run when they have found each other, or this process has left.
  bool defer(std::function<void()> task);
  // The process of that rank, if the generation is the present one; else 0.
  ContextId member(uint32_t generation, int rank) const {
    std::lock_guard lock(mutex_);
    const auto members = present_.found.contexts();
    const auto at = static_cast<size_t>(rank);
    return present_.number == generation && at < members.size() ? members[at] : 0;
  }
  // Of that generation, this rank has found all members.
  void formed(uint32_t generation, const ResolvedGroup& found);

  const std::shared_ptr<JoinAcceptor>& join_acceptor() const { return join_acceptor_; }
  uint64_t group_id() const { return group_id_; }
  // Of a candidate: what is known of members by now.
  void update_members(const GroupAdvertisement& invitation);
  // Of a candidate: the group of the generation in which it is a member, once there is one; nothing
  // if there is none until then.
  std::optional<Result<ShrinkResult>> await_admission(TimePoint until, const MakeGroup& make);

 private:
  // A generation that this process has installed.
  struct Generation {
    uint32_t number = 0;
    ResolvedGroup found;            // while not `formed`, what was decided
    bool needs_rendezvous = false;  // see NextGroupSpec
    int survivor_count = 0;
    bool formed = false;  // it is known how all are reached
    std::weak_ptr<GenerationDelegate> group;
    bool begun = false;
    bool frozen = false;  // for the one that follows: no group is made of it any more
    std::optional<PromiseInfo> standing;
  };
  // GroupConsensusDelegate
  std::optional<PeerAddress> recipient(ProcessId process) override { return book_->find(process); }
  std::map<ProcessId, PeerAddress> recipients() override { return book_->all(); }
  bool accepts_joins() override { return join_acceptor_->admits(); }
  bool on_join_request(const Newcomer& newcomer, uint32_t reached) override;
  std::string entry() override { return entry_; }
  PromiseInfo stop_and_report() override;
  void read_vote(const GenerationId& generation, VoteRead then) override;
  void cast_vote(const GenerationId& generation, const std::optional<Accepted>& before,
                 const Accepted& vote, VoteCast then) override;
  void on_installed(const Decision& decision) override;
  void on_begun() override;
  void on_excluded(const Decision& decision) override;

  bool may_make(uint32_t after) const RINGDIST_REQUIRES(mutex_) {
    return present_.number > after && present_.begun && !present_.frozen &&
           present_.number != unusable_;
  }
  void release() RINGDIST_REQUIRES(mutex_);
  // Newcomers come to the present generation, once it has begun and is formed.
  void receive() RINGDIST_REQUIRES(mutex_);
  void add_step(const Decision& decision) RINGDIST_REQUIRES(mutex_);
  Generation made_by(const Decision& decision) const RINGDIST_REQUIRES(mutex_);
  Result<CommunicatorOptions> options_of(const Generation& generation);
  Error over(uint32_t after) const RINGDIST_REQUIRES(mutex_);
  ShrinkResult report(uint32_t after) const RINGDIST_REQUIRES(mutex_);
  // The present generation's; nothing: there is to be a further one.
  std::optional<Result<ShrinkResult>> make_present(uint32_t after, TimePoint deadline,
                                                   const MakeGroup& make);
  std::optional<Result<ShrinkResult>> cannot_make(const Generation& next, Error error);
  Error no_agreement();

  Context& context_;                   // that of its Communicators, and of the membership thread
  const CommunicatorOptions options_;  // of the first generation
  const uint64_t group_id_;
  const std::vector<ContextId> first_members_;  // of a candidate nobody
  const std::string entry_;                     // a candidate's

  ActiveStore store_;
  const std::shared_ptr<AddressBook> book_ = std::make_shared<AddressBook>();
  const std::shared_ptr<JoinAcceptor> join_acceptor_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Generation present_ RINGDIST_GUARDED_BY(mutex_);
  uint32_t made_ RINGDIST_GUARDED_BY(mutex_) = 0;  // the last of which a group was made
  uint32_t unusable_ RINGDIST_GUARDED_BY(mutex_) =
      0;  // of which none could be: there is to be another
  Error unusable_because_ RINGDIST_GUARDED_BY(mutex_);
  bool renumbered_ RINGDIST_GUARDED_BY(mutex_) =
      false;  // newcomers have no rank of the first one's
  std::optional<Decision> admitted_by_ RINGDIST_GUARDED_BY(mutex_);  // of a candidate
  std::vector<std::function<void()>> deferred_ RINGDIST_GUARDED_BY(mutex_);
  bool left_ RINGDIST_GUARDED_BY(mutex_) = false;
  GenerationHistory steps_ RINGDIST_GUARDED_BY(mutex_);
  std::optional<uint32_t> excluded_ RINGDIST_GUARDED_BY(mutex_);  // from that generation
};

}  // namespace ringdist
