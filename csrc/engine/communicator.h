// Communicator: the interface of a group for its callers. It numbers and plans ops, passes them to
// the progress engine and waits for them. It also creates duplicates, subgroups and the group's
// next generation.
//
// Any thread, without the GIL. A Communicator is owned by shared_ptr. Lock order: the mutex of
// DeviceOps comes before all others, and mutex_ before the progress engine's locks.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/thread_annotations.h"
#include "engine/bootstrap/communicator_options.h"
#include "engine/bootstrap/group_bootstrap.h"
#include "engine/context/context.h"
#include "engine/device/device_ops.h"
#include "engine/hooks.h"
#include "engine/membership/generation_handle.h"
#include "engine/membership/group_membership.h"
#include "engine/op/op.h"
#include "engine/op_planner.h"

namespace ringdist {

class Communicator;

// Stores why a group failed, and the duplicates that fail with it. It is an object apart from the
// Communicator because progress callbacks write it, and they must never hold the last reference to
// a Communicator. Any thread.
class GroupFailure {
 public:
  // Returns the first cause of the failure; success if the group has not failed.
  Error cause() const {
    if (!failed_) return {};
    std::lock_guard lock(mutex_);
    return cause_;
  }

  // Records the failure; it is called again only if a callback threw, with the same cause. Returns
  // the duplicates, which the caller has to fail, too. Some of them may have been destroyed.
  std::vector<std::weak_ptr<Communicator>> set(const Error& cause) {
    std::lock_guard lock(mutex_);
    cause_ = cause;
    failed_ = true;
    return duplicates_;
  }

  // Registers a duplicate, which fails when this group fails. Returns the cause if the group has
  // failed already; then the caller has to fail the duplicate.
  Error add(const std::shared_ptr<Communicator>& duplicate) {
    std::lock_guard lock(mutex_);
    std::erase_if(duplicates_, [](const auto& one) { return one.expired(); });
    duplicates_.push_back(duplicate);
    return cause_;
  }

  // Returns the duplicates that still exist.
  std::vector<std::shared_ptr<Communicator>> duplicates() const {
    std::vector<std::shared_ptr<Communicator>> out;
    std::lock_guard lock(mutex_);
    for (const auto& duplicate : duplicates_)
      if (auto one = duplicate.lock()) out.push_back(std::move(one));
    return out;
  }

 private:
  // set after `cause_`, so that cause() needs no lock before a failure
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;  // a leaf: no other lock is taken while it is held
  // success until the failure
  Error cause_ RINGDIST_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<Communicator>> duplicates_ RINGDIST_GUARDED_BY(mutex_);
};

// A group of ranks that runs ops. create() returns before the group has formed: ops may be
// submitted at once, and they begin when all members have found each other. A failure is final: the
// first cause is kept, and later ops are refused with it.
class Communicator : public std::enable_shared_from_this<Communicator>,
                     public GenerationDelegate,
                     private DeviceOpsDelegate {
 public:
  // Returns the eager window: the bytes of eager messages that one sender may have outstanding at
  // this rank before it needs a grant. All ranks get the same value, because segment_bytes must be
  // equal on all of them.
  static int64_t eager_window(const Config& config) {
    return EagerCredit::kSegments * config.segment_bytes;
  }

  // Publishes this rank's info and starts to look for the other ranks on the task pool. Does not
  // wait for them. Errors: those of the store and of opening the transports.
  static Result<std::shared_ptr<Communicator>> create(std::shared_ptr<Context> context,
                                                      CommunicatorOptions options);
  // Like the above, with another bootstrap than StoreBootstrap. `place` is the generation that this
  // group is, if it is one that the members of an earlier generation agreed on.
  static Result<std::shared_ptr<Communicator>> create(std::shared_ptr<Context> context,
                                                      CommunicatorOptions options,
                                                      std::shared_ptr<GroupBootstrap> formation,
                                                      GroupMembership::GenerationRef place = {});
  // Creates the group of a generation that its members have agreed on. `prospect` decides how its
  // ranks find each other: through the store, or not at all, because all addresses were decided on.
  static Result<GroupMembership::Made> create_next(std::shared_ptr<Context> context,
                                                   CommunicatorOptions options,
                                                   const NextGroupSpec& prospect,
                                                   GroupMembership::GenerationRef place) {
    context->renumber_ranks();
    auto formation = prospect.formation(context, options);
    auto made =
        create(std::move(context), std::move(options), std::move(formation), std::move(place));
    if (!made.ok()) return made.error();
    return GroupMembership::Made{made.value(), made.value()};
  }
  // Without close(), does not wait for ops in flight. The other ranks still receive a notice that
  // this one has left. In a forked child it sends nothing and leaks what belongs to devices. Not on
  // a progress thread: it may write to the store.
  ~Communicator() override;

  // Creates a group of the same ranks with its own order of ops. It ends when this group does. All
  // ranks have to make the same calls for a suffix, in the same order. `service` is null on all
  // ranks, or lives in the new group on all ranks.
  Result<std::shared_ptr<Communicator>> duplicate(
      const std::string& suffix, const std::shared_ptr<GroupService>& service = nullptr);

  // Creates a group of some of these ranks, with the same options. `store` is used by those ranks
  // only. Returns null if this rank is not one of `ranks`, which have to make the same call.
  //
  // If the group has run ops on devices, all its ranks have to call this, in the order of its ops.
  // A rank outside `ranks` may give the ranks of any other subgroup. The call then splits the
  // device runner and may wait for the other ranks, until this group's timeout. Errors: those of
  // submit() and create().
  Result<std::shared_ptr<Communicator>> subgroup(const std::vector<int>& ranks,
                                                 std::shared_ptr<Store> store, std::string name,
                                                 Milliseconds timeout);

  // Plans and numbers the op and queues it. `will_wait` promises that the caller calls wait() at
  // once, so that no other thread needs to be woken. An op on a device may wait here for other
  // ranks; if it cannot be started, the group fails (see DeviceOps).
  //
  // After an Error nothing was sent and no number was used. The Error is the first cause if the
  // group has failed. It is kAborted if it was closed, if the process was forked, or if a value is
  // NaN and Config::nan_check is set. Otherwise the request is invalid.
  Result<std::shared_ptr<Op>> submit(OpRequest request, bool will_wait);

  // Fails the group on all ranks with an error that names this rank and an element, as "element 3
  // of the gradient of 'fc.weight'". Returns that error.
  Error fail_for_nan(const std::string& element) {
    const Error error =
        Error(ErrorKind::kAborted, "rank " + std::to_string(rank()) + " of group '" + name() +
                                       "': " + element + " is NaN (RINGDIST_NAN_CHECK)")
            .blame(rank());
    fail(error);
    return error.prefixed("ringdist: ");
  }

  // Prepares requests for devices, in order, before any of them is submitted. The first send or
  // receive between two ranks waits for the other rank. A caller with several of them has to order
  // them by pair of ranks, or ranks could wait for each other in a cycle. Errors: as submit().
  Error prepare(const std::vector<const OpRequest*>& requests) {
    return devices_->prepare(requests);
  }

  // Waits until the op has finished, or until `timeout` has passed. Returns false after a timeout,
  // which ends only this wait. Without a timeout it waits for as long as the op lasts. An op also
  // ends by its own deadline, with an error that describes the cause. The caller may make progress
  // for all groups meanwhile, so it must not hold the GIL.
  bool wait(const Op& op, std::optional<Milliseconds> timeout) {
    return context_->progress().wait(op, deadline_after(timeout));
  }

  // Reports that the results of an op with `output_staged` have been copied to the caller's memory,
  // or never will be. Later barriers wait for this. Does nothing in a forked child.
  void output_delivered(uint64_t number) {
    if (context_->forked()) return;
    context_->progress().post_to(slot_, [number](GroupSlot& slot) {
      if (Group* group = slot.group()) group->output_delivered(number);
    });
  }

  // Returns the number of the last collective that was submitted; 0 before the first. Sends and
  // receives have no numbers.
  uint64_t sequence_number() const { return next_number_.load() - 1; }
  // Returns the first cause if the group has failed, else success.
  Error failure() const { return failure_->cause(); }
  // Functions attached to the group. The failure hooks run after failure() has begun to return an
  // error.
  const std::shared_ptr<Hooks>& hooks() const { return hooks_; }
  // If the group has failed, calls its failure hooks or waits until they have returned. Call it
  // without the GIL, which the hooks may need.
  void run_failure_hooks() {
    if (!hooks_->failed.empty() && failure()) hooks_->call_failed();
  }
  // Sets the default timeout of later ops, here and in all duplicates. Ops in flight keep their
  // deadlines.
  void set_timeout(Milliseconds timeout) {
    for (const auto& duplicate : duplicates()) duplicate->set_timeout(timeout);
    std::lock_guard lock(mutex_);
    timeout_ = timeout;
  }
  Milliseconds timeout() const override {
    std::lock_guard lock(mutex_);
    return timeout_;
  }

  // Agrees with the other reachable ranks on the group's next generation, and creates its group.
  // The next generation leaves out lost ranks and includes newcomers that wait. This group ends on
  // all ranks. All survivors have to call it, at any time: the new group forms when the last of
  // them has.
  //
  // Fails with kTimeout if there was no agreement, for example for lack of a quorum; the call may
  // be repeated. Fails with kPeerLost if the others go on without this process. Fails with
  // kNotSupported if the group has one rank and accepts no newcomers, or if several of its ranks
  // are in one process. Fails with kInvalidArgument if the group has not formed, was shrunk before,
  // or is being shrunk by another thread.
  //
  // A caller that repeats the call in short slices gives the end of the last one as `limit`.
  // Creating the group, which reads the store, may take until then.
  Result<ShrinkResult> shrink(Milliseconds timeout, std::optional<TimePoint> limit = {});
  // Lets newcomers (JoinClient) join this and later generations while there are fewer members than
  // `most`; 0 means no limit. When one waits, ops fail as after a loss, and shrink() includes it.
  // All members have to call it. Rank 0 publishes an advertisement with `note`, under the name of
  // the job, in the unprefixed store. Fails with kSystem if the store does, and with kAborted,
  // kNotSupported and kInvalidArgument as shrink().
  Error admit(std::string job, std::string note, uint32_t most = 0) {
    const Error error = context_->forked()
                            ? Error(ErrorKind::kAborted, "the process was forked")
                            : own_.admit(std::move(job), std::move(note), most, timeout());
    return error ? error.prefixed("ringdist: admit: group '" + name() + "': ") : error;
  }
  // Treats the process of another rank as lost although it lives. The group fails, and shrink()
  // leaves that process out. Returns at once. Does nothing if a later generation was agreed on
  // already, or if there is no such rank. Errors: those of shrink() for a group that has not
  // formed.
  Error give_up(int rank, const std::string& why) {
    const Error error = context_->forked() ? Error(ErrorKind::kAborted, "the process was forked")
                                           : own_.give_up(*context_, rank, why);
    return error ? error.prefixed("ringdist: give_up: group '" + name() + "': ") : error;
  }
  // Fails the group here without a notice to other ranks. Returns the number of the first
  // collective that is unfinished on this rank. If the progress engine does not answer within 10 s,
  // returns 1, the value that claims the least.
  uint64_t stop_and_report(const Error& cause) override;
  // Returns true if shrink() has created the group of a later generation.
  bool was_replaced() const { return own_.was_replaced(); }
  // Creates a group of all ranks except `ranks`, which has at least one rank and does not contain
  // this one. All remaining ranks have to call it alike; the excluded ones must not. It needs no
  // agreement, and this group goes on. Errors: those of shrink() for a group that has not formed or
  // has one rank.
  Result<std::shared_ptr<Communicator>> without(const std::vector<int>& ranks);

  // Fails the group on all ranks: ops in flight end with `cause`. Reaches only ranks that have
  // found each other. Returns at once.
  void fail(const Error& cause);
  // Fails the group and its duplicates because this rank wants it. Ranks that still look for this
  // one are notified, too. Waits up to Context::kFinishTime, for each duplicate as well. Later
  // submissions are refused. On a progress thread it does not wait for the progress engine. Does
  // nothing in a forked child.
  void abort(const std::string& why);
  // Returns true when none of the group's ops is in flight, or when none will ever end because the
  // progress engine has stopped. Returns false at the deadline, or earlier if the progress engine
  // does not answer for 10 s. Must not be called from a task of the progress engine.
  bool wait_until_idle(TimePoint deadline) {
    if (context_->forked()) return true;
    ProgressEngine& progress = context_->progress();
    return progress.call_until([slot = slot_] { return slot->idle(); }, deadline) ||
           progress.stopped();
  }
  // Ends ops for which nobody waits any longer, before close(). Aborts receives, with `cause`; if
  // `all` is set and other ops are in flight, fails the group (see GroupSlot::abandon()). Returns
  // descriptions of what was ended; nothing if the progress engine does not answer.
  std::vector<std::string> abandon(const Error& cause, bool all) {
    auto out = std::make_shared<std::vector<std::string>>();
    const bool done =
        run_on_slot([cause, all, out](GroupSlot& slot) { *out = slot.abandon(cause, all); });
    return done ? std::move(*out) : std::vector<std::string>();
  }
  // Waits for the ops in flight (each ends by its timeout), notifies the other ranks and leaves the
  // group and its duplicates. Idempotent: a second caller does not wait for the first. Later
  // submissions are refused. Must not be called from a task of the progress engine. Does nothing in
  // a forked child.
  void close();

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const std::string& name() const { return options_.name; }
  const std::vector<int>& members() const { return options_.members; }  // global ranks, by rank
  const Config& config() const { return options_.config; }
  Context& context() { return *context_; }

 private:
  Communicator(std::shared_ptr<Context> context, CommunicatorOptions options,
               std::shared_ptr<GroupBootstrap> formation, GroupMembership::GenerationRef place);
  // Settings of the group for the progress engine, with the callback for its failure.
  GroupConfig group_config() const;
  // Returns why no op can be submitted at present; success if one can.
  Error refusal_now() const RINGDIST_REQUIRES(mutex_);
  // Plans and numbers the op and queues it, as submit() does for an op on the host. Takes mutex_,
  // so that numbers are in the order in which the progress engine gets the ops.
  Result<std::shared_ptr<Op>> enqueue(OpRequest&& request, bool will_wait);
  // Returns an error, with which the group fails, if a value that the op reads here is NaN.
  Error check_nan(const OpRequest& request) {
    if (Error error = refusal()) return error;
    const auto found = find_nan_read(request, rank(), next_number_.load());
    return found ? fail_for_nan(*found) : Error();
  }
  // Runs the bootstrap, on the task pool.
  void form();
  // Calls GroupBootstrap::withdraw() on the task pool, and waits until `until` at most. Does
  // nothing once the group has a nonce.
  void withdraw(TimePoint until, ErrorKind kind, const std::string& why, bool process_ends = false);
  // The destructor's work. It may throw.
  void drop();
  // Ends the hooks, then waits for a bootstrap under way and for ops in flight, until `until`.
  void finish(NoticeKind how, TimePoint until);
  // Announces over the control plane that this rank has left.
  void leave(NoticeKind how) {
    run_on_slot([how](GroupSlot& slot) { slot.announce_leave(how); });
  }
  // Runs `body` in the progress engine and waits for it. Returns false if it did not run within 10
  // s, or if the progress engine has stopped. It may still run after a timeout, so it must own what
  // it uses.
  bool run_on_slot(std::function<void(GroupSlot&)> body);
  std::vector<std::shared_ptr<Communicator>> duplicates() const { return failure_->duplicates(); }

  // DeviceOpsDelegate
  Error refusal() const override {
    std::lock_guard lock(mutex_);
    return refusal_now();
  }
  Error await_members(TimePoint deadline) override;
  std::unique_ptr<RunnerDelegate> runner_group() override;
  Result<std::shared_ptr<Op>> accept(OpRequest request) override {
    return enqueue(std::move(request), /*will_wait=*/false);
  }
  void end_group(const std::string& why) override { abort(why); }
  std::function<void(Error)> when_ended(const std::shared_ptr<Op>& op) override;

  const std::shared_ptr<Context> context_;
  const CommunicatorOptions options_;
  const std::shared_ptr<GroupBootstrap> formation_;
  const std::shared_ptr<GroupFailure> failure_ = std::make_shared<GroupFailure>();
  const std::shared_ptr<Hooks> hooks_ = std::make_shared<Hooks>();
  const std::shared_ptr<DeviceOps> devices_;
  const std::shared_ptr<GroupSlot> slot_;     // used by the progress engine only
  const std::shared_ptr<OpPlanner> planner_;  // plan() is called with mutex_ held
  GenerationHandle own_;
  std::atomic<uint64_t> next_number_{1};  // number of the next collective

  std::mutex making_;  // serializes the creation of derived groups; locked before mutex_
  std::map<std::string, uint64_t> duplicates_made_ RINGDIST_GUARDED_BY(making_);  // by suffix

  mutable std::mutex mutex_;
  Milliseconds timeout_ RINGDIST_GUARDED_BY(mutex_);
  bool closed_ RINGDIST_GUARDED_BY(mutex_) = false;
};

}  // namespace ringdist
