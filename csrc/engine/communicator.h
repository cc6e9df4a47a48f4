// What a caller sees of a group: gives ops their number and plan, hands them to the lane, waits for
// them. Any thread, without the GIL.
//
// Lock order: that of DeviceOps before all others, mutex_ before the lane's.
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

// Why a group failed, and the groups that end with it. Apart from its Communicator, because the
// lane writes it and must never be the last to hold one. Any thread.
class Communicator;

class GroupFailure {
 public:
  // Success if it has not failed.
  Error cause() const {
    if (!failed_) return {};
    std::lock_guard lock(mutex_);
    return cause_;
  }

  // The siblings that are to fail, too.
  std::vector<std::weak_ptr<Communicator>> set(const Error& cause) {
    std::lock_guard lock(mutex_);
    cause_ = cause;
    failed_ = true;
    return duplicates_;
  }

  // It ends with the group; the cause, if that has failed before.
  Error add(const std::shared_ptr<Communicator>& duplicate) {
    std::lock_guard lock(mutex_);
    std::erase_if(duplicates_, [](const auto& one) { return one.expired(); });
    duplicates_.push_back(duplicate);
    return cause_;
  }

  // Those that live.
  std::vector<std::shared_ptr<Communicator>> duplicates() const {
    std::vector<std::shared_ptr<Communicator>> out;
    std::lock_guard lock(mutex_);
    for (const auto& duplicate : duplicates_)
      if (auto one = duplicate.lock()) out.push_back(std::move(one));
    return out;
  }

 private:
  std::atomic<bool> failed_{false};  // after `cause_`: spares those that ask the lock
  mutable std::mutex mutex_;         // a leaf
  Error cause_ RINGDIST_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<Communicator>> duplicates_ RINGDIST_GUARDED_BY(mutex_);
};

class Communicator : public std::enable_shared_from_this<Communicator>,
                     public GenerationDelegate,
                     private DeviceOpsDelegate {
 public:
  // Bytes that may be on their way to a rank that has not asked for them, per sender.
  static int64_t eager_window(const Config& config) {
    return EagerCredit::kSegments * config.segment_bytes;
  }

  // Publishes this rank and begins to look for the others, in the background; waits for nobody.
  static Result<std::shared_ptr<Communicator>> create(std::shared_ptr<Context> context,
                                                      CommunicatorOptions options);
  // The same by another formation; `place`: of a generation that was decided on.
  static Result<std::shared_ptr<Communicator>> create(std::shared_ptr<Context> context,
                                                      CommunicatorOptions options,
                                                      std::shared_ptr<GroupBootstrap> formation,
                                                      GroupMembership::GenerationRef place = {});
  // The group of a generation that was decided on.
  static Result<GroupMembership::Made> create_next(std::shared_ptr<Context> context,
                                                   CommunicatorOptions options,
                                                   const NextGroupSpec& prospect,
                                                   GroupMembership::GenerationRef place) {
    auto formation = prospect.formation(context, options);
    auto made =
        create(std::move(context), std::move(options), std::move(formation), std::move(place));
    if (!made.ok()) return made.error();
    return GroupMembership::Made{made.value(), made.value()};
  }
  ~Communicator() override;

  // Another group of the same ranks, with an order of ops of its own, which ends when this one
  // does. All ranks call it alike. `service`: null, or lives in it on all ranks.
  Result<std::shared_ptr<Communicator>> duplicate(const std::string& suffix,
                                                  std::shared_ptr<GroupService> service = nullptr);

  // A group of some of these ranks, with the same options; `store` is theirs alone. Null where this
  // one is not among them. Those ranks call it alike; all ranks of this group do, each with the
  // ranks that it will be with, or others', in the order of its ops, where some were on devices:
  // what those have made is split, for which it may wait, until this group's timeout. Errors: as of
  // submit(), and of create().
  Result<std::shared_ptr<Communicator>> subgroup(const std::vector<int>& ranks,
                                                 std::shared_ptr<Store> store, std::string name,
                                                 Milliseconds timeout);

  // Checks the plan, numbers the op and enqueues it. An Error means that nothing was sent and no
  // number taken: a bad plan, or a group that has failed (its first cause), was closed or forked.
  // `will_wait`: the caller calls wait() at once, so no other thread need be woken. An op on a
  // device may wait for other ranks here, and fails the group where it is not started: see
  // DeviceOps.
  Result<std::shared_ptr<Op>> submit(OpRequest request, bool will_wait);

  // Of requests that are on devices: has what they need made before any is submitted, in their
  // order. Two ranks' first send or receive waits for the other one: who has several goes by pairs
  // of ranks in their order, lest ranks wait for each other in a ring. Errors: as of submit().
  Error prepare(const std::vector<const OpRequest*>& requests) {
    return devices_->prepare(requests);
  }

  // True once the op has finished; false if the timeout passed first (that ends only this wait).
  bool wait(const Op& op, std::optional<Milliseconds> timeout) {
    // The op itself ends by its deadline; the margin is for the lane to say why.
    return context_->progress().wait(op, deadline_after(timeout));
  }

  // Of an op that `output_staged`: its results are where the caller wants them, or never will be.
  void output_delivered(uint64_t number) {
    if (context_->forked()) return;
    ProgressEngine& progress = context_->progress();
    progress.post([&dispatcher = progress.dispatcher(), slot = slot_, number] {
      dispatcher.output_delivered(slot, number);
    });
  }

  // The number of the last op that was submitted.
  uint64_t sequence_number() const { return next_number_.load() - 1; }
  Error failure() const { return failure_->cause(); }
  // Those for failure are called when failure() is no longer a success.
  const std::shared_ptr<Hooks>& hooks() const { return hooks_; }
  // If the group has failed: returns when its hooks have. Without the GIL, which they may need.
  void run_failure_hooks() {
    if (!hooks_->failed.empty() && failure()) hooks_->call_failed();
  }
  void set_timeout(Milliseconds timeout) {
    for (const auto& duplicate : duplicates()) duplicate->set_timeout(timeout);
    std::lock_guard lock(mutex_);
    timeout_ = timeout;
  }
  Milliseconds timeout() const override {
    std::lock_guard lock(mutex_);
    return timeout_;
  }

  // Agrees with all others that can be reached on the group's next generation, without those that
  // are lost and with newcomers that wait, and makes its group; this one ends on all ranks. All who
  // stay call it, each when it likes: until the last has, the new group forms. Errors: kTimeout, no
  // agreement, and why (there is no quorum, say): it may be called again; kPeerLost, the others go
  // on without this process; kNotSupported, the group has one rank and takes no newcomers, or has
  // several in one process; kInvalidArgument, it has not formed, was shrunk before, is being
  // shrunk.
  Result<ShrinkResult> shrink(Milliseconds timeout);
  // Newcomers (Admission) may come to this generation and later ones: then ops fail as after a
  // loss; while there are fewer members than `most`, if it is not 0. All members call it. On rank 0
  // leaves an invitation in the whole store, under the job's name, with `note`.
  // Errors: kSystem, the store's; kAborted, kNotSupported, kInvalidArgument, as of shrink().
  Error admit(std::string job, std::string note, uint32_t most = 0) {
    const Error error = context_->forked()
                            ? Error(ErrorKind::kAborted, "the process was forked")
                            : own_.admit(std::move(job), std::move(note), most, timeout());
    return error ? error.prefixed("ringdist: admit: group '" + name() + "': ") : error;
  }
  // Treats the process of another rank as lost, though it lives: the group fails, and shrink()
  // leaves it out. Waits for nobody. Nothing happens if a later generation was agreed on already,
  // or there is no such rank. Errors: as of shrink(), of a group that has not formed.
  Error give_up(int rank, const std::string& why) {
    const Error error = context_->forked() ? Error(ErrorKind::kAborted, "the process was forked")
                                           : own_.give_up(*context_, rank, why);
    return error ? error.prefixed("ringdist: give_up: group '" + name() + "': ") : error;
  }
  uint64_t stop_and_report(const Error& cause) override;
  // It was shrunk: another group is what goes on.
  bool was_replaced() const { return own_.was_replaced(); }
  // The group without these ranks of it, at least one, this one not among them; of all others. All
  // of those call it alike, the excluded ones not: nobody is asked, and this group goes on.
  // Errors: as of shrink(), of a group that has not formed or has one rank.
  Result<std::shared_ptr<Communicator>> without(const std::vector<int>& ranks);

  // Ends all ops of the group, on all ranks, that have found each other.
  void fail(const Error& cause);
  // The same, as this rank's will, also while others look for it; its siblings end, too. What is
  // submitted after it is refused.
  void abort(const std::string& why);
  // True: none of its ops is in flight, or none will ever end.
  bool wait_until_idle(TimePoint deadline) {
    if (context_->forked()) return true;
    ProgressEngine& progress = context_->progress();
    const auto idle = [&dispatcher = progress.dispatcher(), slot = slot_] {
      return dispatcher.idle(slot);
    };
    return progress.call_until(idle, deadline) || progress.stopped();
  }
  // Before close(), for ops that nobody waits for any longer: see GroupSlot::abandon(). Returns
  // what has ended; nothing if the lane does not answer.
  std::vector<std::string> abandon(const Error& cause, bool all) {
    auto out = std::make_shared<std::vector<std::string>>();
    const bool done = run_in_progress(
        [slot = slot_, cause, all, out](auto&) { *out = slot->abandon(cause, all); });
    return done ? std::move(*out) : std::vector<std::string>();
  }
  // Waits for the ops in flight (each ends by its timeout), tells the others and leaves.
  // Idempotent.
  void close();

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const std::string& name() const { return options_.name; }
  const std::vector<int>& members() const { return options_.members; }  // global ranks
  const Config& config() const { return options_.config; }
  Context& context() { return *context_; }

 private:
  Communicator(std::shared_ptr<Context> context, CommunicatorOptions options,
               std::shared_ptr<GroupBootstrap> formation, GroupMembership::GenerationRef place);
  GroupConfig group_config() const;
  Error refusal_now() const RINGDIST_REQUIRES(mutex_);
  Result<std::shared_ptr<Op>> enqueue(OpRequest&& request, bool will_wait);
  void form();
  // GroupBootstrap::withdraw(), for which it waits until then at most.
  void withdraw(TimePoint until, ErrorKind kind, const std::string& why, bool process_ends = false);
  void drop();
  void finish(NoticeKind how, TimePoint until);
  void leave(NoticeKind how) {
    run_in_progress(
        [slot = slot_, how](auto& dispatcher) { dispatcher.announce_leave(slot, how); });
  }
  // False: it has not run within ten seconds.
  bool run_in_progress(std::function<void(Dispatcher&)> task);
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
  const std::shared_ptr<GroupSlot> slot_;     // touched on the lane only
  const std::shared_ptr<OpPlanner> planner_;  // plan() with the mutex
  GenerationHandle own_;
  std::atomic<uint64_t> next_number_{1};

  std::mutex making_;  // a sibling; before mutex_
  std::map<std::string, uint64_t> duplicates_made_ RINGDIST_GUARDED_BY(making_);  // by suffix

  mutable std::mutex mutex_;
  Milliseconds timeout_ RINGDIST_GUARDED_BY(mutex_);
  bool closed_ RINGDIST_GUARDED_BY(mutex_) = false;
};

}  // namespace ringdist
