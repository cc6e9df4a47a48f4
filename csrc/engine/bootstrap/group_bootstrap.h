// How one rank finds out who the members of its group are, and becomes known to them: once per
// group, on the task pool, since it waits for the others. Any thread may call the rest meanwhile.
//
// Its last phase goes over the control links: it ends on no rank before every member has found all
// others. So whoever ends after that takes nothing along that another still needs.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/network_costs.h"
#include "control/control_groups.h"
#include "engine/context/context.h"
#include "engine/group/group_descriptor.h"
#include "engine/group/notice.h"
#include "rendezvous/rank_info.h"

namespace ringdist {

// What a rank knows of its group once it has found it. A value.
struct ResolvedGroup {
  GroupDescriptor membership;
  std::vector<ControlMember> processes;  // by rank
  GroupCosts costs;                      // rank 0's

  // Of the members, by rank.
  std::vector<ContextId> contexts() const;

  // A group of some of its ranks, in that order, on the one that was `own` of them; it has no
  // nonce yet. All that is known of them stays.
  ResolvedGroup of(const std::vector<int>& ranks, int own) const;
};

class GroupBootstrap {
 public:
  using Named = std::function<void(uint64_t nonce)>;
  using Ended = std::function<void(const Result<ResolvedGroup>&)>;
  using Known = std::function<void(const ResolvedGroup&)>;

  // It gives up at `deadline`.
  GroupBootstrap(std::shared_ptr<Context> context, std::string name, int rank, int size,
                 TimePoint deadline);
  virtual ~GroupBootstrap() = default;
  GroupBootstrap(const GroupBootstrap&) = delete;
  GroupBootstrap& operator=(const GroupBootstrap&) = delete;

  // Its members may go on as others, of a later generation.
  virtual bool has_generations() const { return false; }
  // Makes this rank known to the others; waits for nobody.
  virtual Error publish() { return {}; }

  // Blocks. Calls `named` when the group has a name, from when on the control plane must be told of
  // our end and others may tell us that theirs has failed; then `ended`, once, whatever happens.
  void run(const Named& named, const Ended& ended);
  // Before run(). Of a group that can have later generations run() calls `known`, once or more,
  // before `ended`: all ranks that come as far find the same members. From then on the group can be
  // shrunk.
  void when_known(Known known) { known_ = std::move(known); }
  // Of run().
  const std::shared_future<Result<ResolvedGroup>>& outcome() const { return outcome_; }

  // It need not go on after that; or not at all, as this rank leaves the group (`how`: kExit if its
  // process ends). It does go on to the group's name where it waits for nobody but us.
  void shorten(TimePoint until) { deadline_.shorten(until); }
  void cancel(NoticeKind how = NoticeKind::kLeave) {
    leaves_ = how;
    deadline_.cancelled = true;
  }

  // Its group has failed. One that was decided on need not find its members then; others go on, so
  // that whoever ends takes nothing along that another needs.
  static void group_failed(const std::weak_ptr<GroupBootstrap>& formation, TaskPool& pool);

  // Tells those who look for this rank that it does not come, if they can still be told so where
  // they look: a named group's hear of it from the control plane. `process_ends`: those of its host
  // believe it when its process has ended.
  void withdraw(ErrorKind kind, const std::string& why, bool process_ends = false);
  // run() has failed, of that or because the group had: tells the others, who may have formed or
  // will: a rank that has found everybody need not wait for us, but must hear that we are gone.
  void announce_failure(const Error& cause);

  // 0: it has no name yet.
  uint64_t nonce() const { return nonce_; }

 protected:
  // What the group is called, if that is known before its members are found; 0: it is not.
  virtual uint64_t known_nonce() const { return 0; }
  // The name, the hosts and the processes of all members.
  virtual Result<ResolvedGroup> resolve() = 0;
  void know(const ResolvedGroup& members) const {
    if (known_ && has_generations()) known_(members);
  }
  // Completes the members: how they are reached. Before all have met: after that a member may be
  // done, and gone. An Error is that of a member that cannot be reached, and waits for the rest.
  virtual Error connect_members(ResolvedGroup& formed) = 0;
  // Of an error while the members meet.
  virtual Error on_member_error(const Error& error) const { return error; }
  virtual void publish_withdrawal(ErrorKind, const std::string&, bool /*process_ends*/) {}
  // All members have found each other: removes what this rank has left for them. Blocks.
  virtual void remove_words() {}
  virtual void log_formed(const ResolvedGroup&) const {}
  // The control plane's, which tests replace.
  virtual Error connect(const ResolvedGroup& formed);
  virtual void flood(const Notice& notice);

  void log_phase(const std::string& text) const;
  Context& context() { return *context_; }
  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  const CancellableDeadline& deadline() const { return deadline_; }

 private:
  Result<ResolvedGroup> form(const Named& named);

  const std::shared_ptr<Context> context_;
  const std::string name_;
  const int rank_;
  const int size_;
  CancellableDeadline deadline_;
  Known known_;
  std::atomic<NoticeKind> leaves_{NoticeKind::kLeave};
  std::atomic<uint64_t> nonce_{0};
  std::promise<Result<ResolvedGroup>> promise_;
  const std::shared_future<Result<ResolvedGroup>> outcome_ = promise_.get_future().share();
};

// What the log says of a group that has found its members. Any thread.

// "rank 3", "ranks 0-7 9"; in ascending order.
std::string format_ranks(const std::vector<int>& ranks);

// "group 'g' is formed: rank 0 of 4, ranks 0-3 on host a, interface eth0, over shm to ranks 1-3,
// UCX 1.22.0 (wheel), RINGDIST_MEMORY=1GiB": the settings are those that are not the defaults.
std::string describe_formed(const std::string& name, const Config& config,
                            const std::vector<RankInfo>& entries,
                            const GroupDescriptor& membership);

}  // namespace ringdist
