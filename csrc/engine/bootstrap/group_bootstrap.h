// GroupBootstrap: finds the members of a group for one rank, and publishes this rank to them. A
// subclass finds rank infos, topology and nonce; this class runs the phases and reports failures.
//
// run() is called once, on the task pool, because it waits for other ranks. Any thread may call the
// rest meanwhile, except when_known(), which must come before run(). The last phase is the
// formation barrier, over the control plane. It ends on no rank before every member has found all
// others. A rank that ends after the barrier removes nothing that another rank still needs.
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

// A group as one rank has resolved it: members, topology, processes and costs. A value.
struct ResolvedGroup {
  GroupDescriptor membership;
  std::vector<ControlMember> processes;  // by rank; empty for a group of one rank
  // Cost constants of rank 0. In a subgroup they are those of the parent's rank 0.
  GroupCosts costs;

  // Returns the context ids of the members, by rank.
  std::vector<ContextId> contexts() const;

  // Returns a group of some of these ranks, in the given order, without a nonce. `own` is this
  // rank's number here, which must be one of them. Addresses, transports and hosts are kept.
  ResolvedGroup of(const std::vector<int>& ranks, int own) const;
};

// Base class of bootstraps.
class GroupBootstrap {
 public:
  // Called with the group's nonce, at most once. A group of one rank never calls it.
  using Named = std::function<void(uint64_t nonce)>;
  // Called with the outcome of the bootstrap, exactly once.
  using Ended = std::function<void(const Result<ResolvedGroup>&)>;
  // Called with the members, before the outcome.
  using Known = std::function<void(const ResolvedGroup&)>;

  // If the members have not found each other at `deadline`, run() fails then or a little later. A
  // DerivedBootstrap first waits for its parent's outcome, even beyond the deadline.
  GroupBootstrap(std::shared_ptr<Context> context, std::string name, int rank, int size,
                 TimePoint deadline);
  virtual ~GroupBootstrap() = default;
  GroupBootstrap(const GroupBootstrap&) = delete;
  GroupBootstrap& operator=(const GroupBootstrap&) = delete;

  // Returns true if the group can have later generations with other members. The answer never
  // changes. Any thread.
  virtual bool has_generations() const { return false; }
  // Publishes this rank to the others. Does not wait for them. Without a store there is nothing to
  // do.
  virtual Error publish() { return {}; }

  // Runs the bootstrap; blocks. Calls `named` if the group's nonce has been found. From then on
  // the control plane has to be notified when this rank ends, and other ranks may report failures.
  // Then calls `ended` exactly once, on every outcome. An exception of a phase becomes the outcome.
  // One of `ended` becomes the value of outcome() instead, and is passed on.
  void run(const Named& named, const Ended& ended);
  // Sets a function that run() calls with the members, once or more, before `ended`. It is called
  // only if has_generations(). All ranks that get this far find the same members. From then on the
  // group can be shrunk. Call it before run().
  void when_known(Known known) { known_ = std::move(known); }
  // Becomes ready when run() has called `ended`.
  const std::shared_future<Result<ResolvedGroup>>& outcome() const { return outcome_; }

  // shorten() moves the deadline to `until`, unless it is earlier. cancel() ends the bootstrap
  // because this rank leaves the group; `how` is kExit if its process exits. Both let the bootstrap
  // go on to the nonce if it waits for no other rank to get it.
  void shorten(TimePoint until) { deadline_.shorten(until); }
  void cancel(NoticeKind how = NoticeKind::kLeave) {
    leaves_ = how;
    deadline_.cancelled = true;
  }

  // Called when the group has failed. If its nonce was decided beforehand, shortens the bootstrap
  // here. Other bootstraps go on, so that a rank that ends removes nothing that another rank needs.
  static void group_failed(const std::weak_ptr<GroupBootstrap>& formation, TaskPool& pool);

  // Notifies ranks that still look for this one in the store that it does not come. Does nothing
  // once the group has a nonce: then the control plane notifies them. With `process_ends`, ranks of
  // this host act on it only when the process has ended.
  void withdraw(ErrorKind kind, const std::string& why, bool process_ends = false);
  // Notifies the other ranks after run() has failed, or because the group failed meanwhile. They
  // may have formed the group or will: a rank that has found everybody does not wait for this one,
  // but must learn that it is gone.
  void announce_failure(const Error& cause);

  // Returns the group's nonce; 0 if it has none yet.
  uint64_t nonce() const { return nonce_; }

 protected:
  // Returns the nonce if it was decided before the members are found, else 0.
  virtual uint64_t known_nonce() const { return 0; }
  // Finds nonce, topology and processes of all members. Blocks until deadline() or a cancellation,
  // unless the subclass documents otherwise. Errors end the bootstrap.
  virtual Result<ResolvedGroup> resolve() = 0;
  // Reports the members to the function of when_known().
  void know(const ResolvedGroup& members) const {
    if (known_ && has_generations()) known_(members);
  }
  // Fills in the transport to each member. Runs before the formation barrier, after which a member
  // may end at any time. Returns an Error if a member cannot be reached; it is reported after the
  // barrier, so that the others need not wait for this rank.
  virtual Error connect_members(ResolvedGroup& formed) = 0;
  // Converts an error of the formation barrier, or of the rendezvous before it.
  virtual Error on_member_error(const Error& error) const { return error; }
  // Publishes for withdraw() that this rank does not come.
  virtual void publish_withdrawal(ErrorKind, const std::string&, bool /*process_ends*/) {}
  // Removes keys that this rank has left for the others. Called after all members have found each
  // other. Blocks.
  virtual void remove_keys() {}
  // Logs the group that has formed.
  virtual void log_formed(const ResolvedGroup&) const {}
  // These two call the control plane. Tests replace them.
  virtual Error connect(const ResolvedGroup& formed);
  virtual void flood(const Notice& notice);

  // Logs a phase of the bootstrap, at debug level.
  void log_phase(const std::string& text) const;
  Context& context() { return *context_; }
  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  const CancellableDeadline& deadline() const { return deadline_; }

 private:
  // The body of run(): all phases. Throws what the phases throw.
  Result<ResolvedGroup> form(const Named& named);

  const std::shared_ptr<Context> context_;
  const std::string name_;
  const int rank_;
  const int size_;
  CancellableDeadline deadline_;
  Known known_;
  std::atomic<NoticeKind> leaves_{NoticeKind::kLeave};  // how this rank leaves, after cancel()
  std::atomic<uint64_t> nonce_{0};                      // 0: not found yet
  std::promise<Result<ResolvedGroup>> promise_;
  const std::shared_future<Result<ResolvedGroup>> outcome_ = promise_.get_future().share();
};

// Formats ranks, which are in ascending order: "rank 3", "ranks 0-7 9". Three or more consecutive
// ranks become a range. Any thread.
std::string format_ranks(const std::vector<int>& ranks);

// Describes a formed group for the log, any thread, with the settings that are not defaults. For
// example "group 'g' is formed: rank 0 of 4, ranks 0-3 on host a, interface eth0, over shm to ranks
// 1-3, UCX 1.22.0 (wheel), RINGDIST_MEMORY=1GiB".
std::string describe_formed(const std::string& name, const Config& config,
                            const std::vector<RankInfo>& entries,
                            const GroupDescriptor& membership);

}  // namespace ringdist
