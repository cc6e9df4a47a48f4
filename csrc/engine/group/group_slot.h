// Slot of a group: a rank's place in the dispatcher, from bootstrap to removal. Ops wait in the
// slot, with their deadlines, until the members have been found. Then a Group executes them. The
// states are:
//
//   `kBootstrapping`: ops wait, and the other ranks cannot be notified of a failure.
//   `kNamed`: ops wait, and the group has a nonce, so that failures can be announced and received.
//   `kFormed`: the Group has the ops.
//   `kFailedUnannounced`: it failed while bootstrapping and is announced once it has a nonce.
//   `kFailed`: it has failed, and the other ranks have been notified or need not be.
//
// In both failed states every op ends with the cause.
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/group/failure_state.h"
#include "engine/group/group.h"

namespace ringdist {

// See the head of this file. Functions with the name of one of Group's do the same, and also work
// before the group has formed.
class GroupSlot {
 public:
  enum class State : uint8_t { kBootstrapping, kNamed, kFormed, kFailedUnannounced, kFailed };

  // `delegate` must outlive the slot. `rank` and `size` must match the descriptor given to form().
  GroupSlot(GroupDelegate& delegate, int rank, int size, GroupConfig config);

  State state() const { return state_; }
  // Returns true if the members have not been found and the slot has not failed.
  bool is_forming() const { return state_ == State::kBootstrapping || state_ == State::kNamed; }
  // Returns null until the group has formed.
  Group* group() { return group_.get(); }

  // Sets the nonce of the group, once, before it forms. Announces a failure that could not be
  // announced before.
  void set_nonce(uint64_t nonce);
  // Creates the Group and gives it the waiting ops. Only while is_forming().
  void form(const GroupDescriptor& membership);

  // Accepts an op. If something throws, the group and the op fail with that error.
  void enqueue(const std::shared_ptr<Op>& op);
  // Like Group::on_notice() and Group::fail(). Before the group has formed, only a notice that
  // prevents the formation has an effect.
  void on_notice(const Notice& notice);
  void fail(const Error& cause, bool tell_others) noexcept;
  // Fails the group without notifying the other ranks. Returns the first collective that has not
  // succeeded here, which no longer changes.
  uint64_t stop_and_report(const Error& cause) noexcept;
  // Like Group::abort_receives(), including receives that wait for the group to form. If `all`,
  // also fails the group, unless it has failed or became idle by the aborts. An idle group without
  // an aborted op fails, too. Returns descriptions of what was aborted.
  std::vector<std::string> abandon(const Error& cause, bool all);
  void tick();
  void announce_leave(NoticeKind how);

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return config_.name; }
  uint64_t nonce() const { return nonce_; }  // 0 until set_nonce() or form()
  // Returns true if the group has formed and has ranks on several hosts.
  bool spans_hosts() const { return group_ && group_->flow.topology.hosts.size() > 1; }
  // Returns true if nothing is in flight or waiting, and no failure remains to be announced.
  bool idle() const {
    return group_ ? group_->idle() : waiting_.empty() && failure_notifier_.done();
  }
  bool listed = false;  // used by the Dispatcher: the slot is in its list of busy ones
  const Error& failure() const { return group_ ? group_->failure() : failure_; }
  GroupStatus status() const;
  std::string dump() const;
  // Returns the state of the group as JSON, with the members of GroupState in the Python module
  // _snapshot.
  std::string snapshot() const;

 private:
  bool failed() const { return state_ == State::kFailedUnannounced || state_ == State::kFailed; }
  // Ends the waiting ops of a failed slot and announces the failure.
  void end() noexcept;
  void end_op(const std::shared_ptr<Op>& op) noexcept;
  GroupStatus status_of_waiting() const;

  GroupDelegate& delegate_;
  const int rank_;
  const int size_;
  const GroupConfig config_;
  State state_ = State::kBootstrapping;
  uint64_t nonce_ = 0;
  uint64_t last_number_ = 0;                 // highest op number before the group formed, for dumps
  std::deque<std::shared_ptr<Op>> waiting_;  // ops that wait for the group to form
  Error failure_;                            // cause of a failure before the group formed
  FailureNotifier failure_notifier_{config_.on_failed};
  std::unique_ptr<Group> group_;  // set once formed
};

}  // namespace ringdist
