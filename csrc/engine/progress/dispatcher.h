// Runs the ops of all groups of a lane: gives messages to the group that they name, keeps those of
// groups that are not known yet, and works through the steps that can run.
//
// Every call comes with the lane's driver token held, which is checked.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/group/group_slot.h"
#include "engine/progress/backoff.h"
#include "engine/progress/progress_lock.h"
#include "engine/progress/unknown_group_messages.h"

namespace ringdist {

// What an Dispatcher needs of its Context.
class DispatcherDelegate {
 public:
  virtual ~DispatcherDelegate() = default;
  // On the task pool. False: it has stopped, and the task is dropped.
  virtual bool run_on_pool(std::function<void()> task) = 0;
  // To the processes of all groups.
  virtual void flood(const Notice& notice) = 0;
};

class Dispatcher final : public TransportDelegate, public GroupDelegate {
 public:
  Dispatcher(Statistics& statistics, int64_t memory_limit, ProgressLock& token,
             DispatcherDelegate& delegate);

  // A rank's place in a group. All that follows about one is nothing once it is removed; what is
  // thrown ends its group, and no other.
  void add(std::shared_ptr<GroupSlot> slot);
  // Its group's name is known: from now on others can say that it fails.
  void set_nonce(const std::shared_ptr<GroupSlot>& slot, uint64_t nonce);
  // Its group begins: from now on messages reach it; those that came before are delivered. Nothing
  // if it has failed. `first` comes before its ops do.
  void form(const std::shared_ptr<GroupSlot>& slot, const GroupDescriptor& membership,
            const std::function<void()>& first = {});
  // The op ends with an error where the group has.
  void enqueue(const std::shared_ptr<GroupSlot>& slot, const std::shared_ptr<Op>& op);
  // As of Group.
  void output_delivered(const std::shared_ptr<GroupSlot>& slot, uint64_t number);
  void ended_on_device(const std::shared_ptr<GroupSlot>& slot, const std::shared_ptr<Op>& op,
                       const Error& error);
  void fail(const std::shared_ptr<GroupSlot>& slot, const Error& cause, bool tell_others);
  // As of GroupSlot.
  uint64_t stop_and_report(const std::shared_ptr<GroupSlot>& slot, const Error& cause);
  void announce_leave(const std::shared_ptr<GroupSlot>& slot, NoticeKind how);
  bool idle(const std::shared_ptr<GroupSlot>& slot) const;
  // Its ops end with kAborted; late messages are dropped.
  void remove(const std::shared_ptr<GroupSlot>& slot);

  // Works on up to a fixed number of segments. True if it did anything.
  bool run_work();
  // Deadlines and stalls, if it is time for them.
  void tick();
  void set_now(TimePoint now);

  // Nothing in flight and nothing to watch: the lane may sleep without a timeout.
  bool idle() const;
  // What for. A wait for other ranks of the host alone counts more than one for other hosts.
  Backoff::Wait wait() const;
  bool has_work() const;
  // How many groups these look at: those that were not idle when they looked last, or that got
  // something to do since.
  size_t watched() const { return watched_.size(); }

  void on_notice(const Notice& notice);
  // Once what that process had sent has been delivered.
  void process_lost(ContextId context, const Error& cause);
  void process_left(ContextId context);
  // What ops do from now on goes there; null: nowhere.
  void set_recorder(std::shared_ptr<TraceRecorder> recorder);
  const std::shared_ptr<TraceRecorder>& recorder() const { return state_.recorder; }
  // Ends all ops of all groups, here only.
  void fail_all(const Error& cause) noexcept;
  // What this process does, in a line: of the group that has waited the longest, or kIdle.
  static constexpr std::string_view kIdle = "no operation in flight";
  std::string status() const;
  std::string dump() const;

  // TransportDelegate
  void on_message(ConstBytes header, const Payload& payload) override;
  bool takes_more() const override { return !state_.any_ended; }
  void on_sent(SendId send_id, const Error& error) override;
  void on_peer_lost(std::string_view transport, ContextId peer, const Error& cause) override;

  // GroupDelegate
  ProgressState& progress_state() override { return state_; }
  void flood(const Notice& notice) override;
  void finish_op(const std::shared_ptr<Op>& op, Error error) noexcept override;
  void on_busy() noexcept override { watch_all(); }

 private:
  template <typename Body>
  void fail_if_thrown(const Body& body);
  template <typename Body>
  void fail_if_thrown(const std::shared_ptr<GroupSlot>& slot, const Body& body);
  template <typename Each>
  void for_each_group(const Each& each);
  bool any_forming() const;
  void watch(GroupSlot& slot) const noexcept;
  void watch_all() const noexcept;
  const std::vector<GroupSlot*>& busy() const;
  void call_back() noexcept;
  void release_ended();

  void check_token() const {
    check(lock_.held_by_this_thread(), "work on a lane without its token");
  }

  ProgressLock& lock_;
  DispatcherDelegate& delegate_;
  ProgressState state_;  // outlives the groups, whose OpExecutions are in it
  std::set<std::shared_ptr<GroupSlot>> slots_;
  mutable std::vector<GroupSlot*> watched_;                  // has room for all; others are idle
  std::map<UnknownGroupMessages::GroupKey, Group*> by_key_;  // those that are formed
  UnknownGroupMessages unknown_groups_{state_.scratch};
  std::vector<Notice> own_notices_;
  std::shared_ptr<Op> to_call_back_;  // the first of those that have ended; see Op::next
  std::map<ContextId, Error> lost_;
  std::set<ContextId> left_;
  TimePoint next_tick_ = state_.now;
};

}  // namespace ringdist
