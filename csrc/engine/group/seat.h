// One rank's place in a group on a lane. Until the members are known its ops wait here, with their
// deadlines; then a Group runs them.
//
//   kForming  ops wait
//   kFormed   the Group has them
//   kFailed   the members were never found: every op ends with the cause
//
// Every call comes with the lane's driver token held.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "engine/group/group.h"

namespace ringdist {

class Seat {
 public:
  enum class State : uint8_t { kForming, kFormed, kFailed };

  Seat(GroupHost& host, int rank, int size, GroupConfig config);

  State state() const {
    return group_ ? State::kFormed : failure_ ? State::kFailed : State::kForming;
  }
  // Null until it is formed.
  Group* group() { return group_.get(); }

  // The group has a name: from now on others can be told that it fails, and tell us. While it
  // forms.
  void expect(uint64_t nonce);
  // The members are known: the ops so far begin. While it forms.
  void form(const Membership& membership);

  void enqueue(std::shared_ptr<Op> op);
  // As of Group. Until it is formed only a notice that prevents it counts.
  void on_notice(const Notice& notice);
  void fail(const Error& cause, bool tell_others);
  void tick();
  void announce_leave(NoticeKind how);

  int rank() const { return rank_; }
  const std::string& name() const { return config_.name; }
  uint64_t nonce() const { return nonce_; }  // 0 until expect() or form()
  bool idle() const { return group_ ? group_->idle() : waiting_.empty(); }
  const Error& failure() const { return group_ ? group_->failure() : failure_; }
  GroupVerdict verdict() const;
  std::string dump() const;

 private:
  void end_ops();
  void tell_failure();
  GroupVerdict verdict_of_waiting() const;

  GroupHost& host_;
  const int rank_;
  const int size_;
  const GroupConfig config_;
  uint64_t nonce_ = 0;
  uint64_t last_number_ = 0;
  std::deque<std::shared_ptr<Op>> waiting_;
  Error failure_;
  bool untold_ = false;  // of the failure: the others are not known yet
  std::unique_ptr<Group> group_;
};

}  // namespace ringdist
