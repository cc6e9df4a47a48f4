// One rank's place in a group on a lane. Until the members are known its ops wait here, with their
// deadlines; then a Group runs them.
//
//   kSeeking  ops wait; the others cannot be told anything yet
//   kNamed    ops wait; others can be told that the group fails, and tell us
//   kFormed   the Group has the ops
//   kUntold   it has failed, and every op ends with the cause; the others hear so once it is named
//   kFailed   the same, and they have heard, or shall not
//
// Every call comes with the lane's driver token held.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/group/failure_state.h"
#include "engine/group/group.h"

namespace ringdist {

class GroupSlot {
 public:
  enum class State : uint8_t { kBootstrapping, kNamed, kFormed, kFailedUnannounced, kFailed };

  GroupSlot(GroupDelegate& delegate, int rank, int size, GroupConfig config);

  State state() const { return state_; }
  bool is_forming() const { return state_ == State::kBootstrapping || state_ == State::kNamed; }
  // Null until it is formed.
  Group* group() { return group_.get(); }

  // The group has a name. Before it is formed.
  void set_nonce(uint64_t nonce);
  // The members are known: the ops so far begin. While it forms.
  void form(const GroupDescriptor& membership);

  // What it throws ends the group, and the op.
  void enqueue(const std::shared_ptr<Op>& op);
  // As of Group. Until it is formed only a notice that prevents it counts.
  void on_notice(const Notice& notice);
  void fail(const Error& cause, bool tell_others) noexcept;
  // Fails, in silence; the first collective that has not ended well here, from now on always.
  uint64_t stop_and_report(const Error& cause) noexcept;
  // As Group::abort_receives(). If `all`, and other ops are in flight, fails the group, too.
  std::vector<std::string> abandon(const Error& cause, bool all);
  void tick();
  void announce_leave(NoticeKind how);

  int rank() const { return rank_; }
  const std::string& name() const { return config_.name; }
  uint64_t nonce() const { return nonce_; }  // 0 until set_nonce() or form()
  // Once it has formed.
  bool spans_hosts() const { return group_ && group_->flow.topology.hosts.size() > 1; }
  bool idle() const {
    return group_ ? group_->idle() : waiting_.empty() && failure_notifier_.done();
  }
  bool listed = false;  // by the Executor, as one that may not be idle
  const Error& failure() const { return group_ ? group_->failure() : failure_; }
  GroupStatus status() const;
  std::string dump() const;

 private:
  bool failed() const { return state_ == State::kFailedUnannounced || state_ == State::kFailed; }
  void end() noexcept;
  void end_op(const std::shared_ptr<Op>& op) noexcept;
  GroupStatus status_of_waiting() const;

  GroupDelegate& delegate_;
  const int rank_;
  const int size_;
  const GroupConfig config_;
  State state_ = State::kBootstrapping;
  uint64_t nonce_ = 0;
  uint64_t last_number_ = 0;
  std::deque<std::shared_ptr<Op>> waiting_;
  Error failure_;
  FailureNotifier failure_notifier_{config_.on_failed};
  std::unique_ptr<Group> group_;
};

}  // namespace ringdist
