// Dispatches the events of a lane to its groups. It routes messages to the group that their header
// names, keeps messages of unknown groups, and executes the steps that are queued.
//
// Threads: the caller holds the lane's progress lock, which is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "engine/group/group_slot.h"
#include "engine/group/notice.h"
#include "engine/group/unexpected_queue.h"
#include "engine/progress/backoff.h"
#include "engine/progress/progress_lock.h"

namespace ringdist {

// Messages and notices for groups that cannot take them, because they are unknown here or still
// bootstrapping. Messages are kept until the group forms, or for a limited time; notices until
// there are too many.
//
// Threads: the caller holds the lane's progress lock.
class UnknownGroupMessages {
 public:
  // Nonce and rank: a Context may hold several ranks of a group.
  using GroupKey = std::pair<uint64_t, int>;

  // Limit of the kept payloads. It is the eager credit of a thousand senders.
  static constexpr size_t kMostBytes = size_t{1} << 30;

  explicit UnknownGroupMessages(std::shared_ptr<ScratchPool> pool, size_t most_bytes = kMostBytes)
      : messages_(std::move(pool)), most_bytes_(most_bytes) {}

  // Keeps a message of Context `from`, 0 if unknown. It is dropped if its group was closed here, or
  // if the maximum number of messages or bytes is reached.
  void keep(ContextId from, const MessageHeader& header, const Payload& payload, TimePoint now);
  // Keeps a notice. It is dropped if its group was closed here, unless `any_forming`: then another
  // rank of the same group may still form. Beyond a maximum, the oldest notice is dropped.
  void keep(const Notice& notice, bool any_forming);

  // Removes and returns the messages of a group that has formed.
  std::vector<UnexpectedMessage> take(const GroupKey& key) { return messages_.take(key); }
  // Calls `each` for every notice of the group. The notices stay, for its other ranks.
  template <typename Each>
  void for_each_notice(uint64_t nonce, const Each& each) const {
    for (const Notice& notice : notices_)
      if (notice.nonce == nonce) each(notice);
  }

  // Records that the rank's group was closed, so that its messages are dropped from here on. Only
  // the last few groups are remembered.
  void close(const GroupKey& key);
  // Drops messages that have waited for a minute, unless a group that they may belong to is still
  // forming.
  void forget_old(bool any_forming, TimePoint now);
  size_t count() const { return messages_.count(); }  // number of kept messages

 private:
  UnexpectedQueue<GroupKey> messages_;
  const size_t most_bytes_;
  // Time of each group's first message, oldest first.
  std::deque<std::pair<TimePoint, GroupKey>> since_;
  std::deque<Notice> notices_;
  std::deque<GroupKey> closed_;  // the last few closed groups
};

// Interface that a Dispatcher uses to reach its Context.
class DispatcherDelegate {
 public:
  virtual ~DispatcherDelegate() = default;
  // Runs the task on the task pool. Returns false if the pool has stopped; then the task is
  // dropped.
  virtual bool run_on_pool(std::function<void()> task) = 0;
  // Sends the notice to the processes of all groups.
  virtual void flood(const Notice& notice) = 0;
};

// Owns the slots of a lane's groups and the state that their ops share. Exceptions fail one group,
// or all if it is unclear which one they belong to.
class Dispatcher final : public TransportDelegate, public GroupDelegate {
 public:
  // `memory_limit` bounds the bytes that may be granted (GrantBudget). The references must outlive
  // the dispatcher.
  Dispatcher(Statistics& statistics, int64_t memory_limit, ProgressLock& lock,
             DispatcherDelegate& delegate);

  // Adds a slot. The functions below have no effect on a slot that has been removed, except that an
  // op given to it ends with an error. But with() still calls its body. An exception in one of them
  // fails the slot's group and no other.
  void add(std::shared_ptr<GroupSlot> slot);
  // Sets the nonce of the slot's group, so that notices about it are delivered.
  void set_nonce(const std::shared_ptr<GroupSlot>& slot, uint64_t nonce);
  // Forms the slot's group. `first` is called before its ops start. Then the messages, notices and
  // departures that were kept for the group are delivered, and later ones reach it directly. Does
  // nothing if the slot has failed.
  void form(const std::shared_ptr<GroupSlot>& slot, const GroupDescriptor& membership,
            const std::function<void()>& first = {});
  // Gives an op to the slot. If the group has failed, the op ends with an error.
  void enqueue(const std::shared_ptr<GroupSlot>& slot, const std::shared_ptr<Op>& op);
  // Calls `body`, which may call any function of the slot.
  template <typename Body>
  void with(const std::shared_ptr<GroupSlot>& slot, const Body& body) {
    check_locked();
    watch(*slot);
    fail_if_thrown(slot, body);
  }
  // Removes a slot. Its ops end with kAborted, and late messages are dropped.
  void remove(const std::shared_ptr<GroupSlot>& slot);

  // Executes up to a fixed number of queued segments and frees ended executions. Returns true if
  // any segment was executed.
  bool run_work();
  // Checks deadlines and stalls of all groups, if the interval has passed.
  void tick();
  // Sets the clock of the lane; called once per iteration.
  void set_now(TimePoint now);

  // Returns true if nothing is in flight and no tick is needed. The lane may then sleep without a
  // timeout.
  bool idle() const;
  // Returns the kind of event that the groups wait for. A group on this host alone takes precedence
  // over one with other hosts.
  Backoff::Wait wait() const;
  // Returns true if steps are queued.
  bool has_work() const;
  // Returns the number of groups that these functions examine: those that were busy at the last
  // look or have become so since. For tests.
  size_t watched() const { return watched_.size(); }

  // Delivers a notice to the groups with its nonce; see UnknownGroupMessages for others.
  void on_notice(const Notice& notice);
  // Reports the loss of a process to all groups. Call after everything that it sent has been
  // delivered. Groups that form later get the report, too.
  void process_lost(ContextId context, const Error& cause);
  // The same for a process that has ended in good order.
  void process_left(ContextId context);
  // Sets the recorder of traces; null turns tracing off.
  void set_recorder(std::shared_ptr<TraceRecorder> recorder);
  const std::shared_ptr<TraceRecorder>& recorder() const { return state_.recorder; }
  // Fails all groups. A cause of kind kAborted is not announced to other ranks, because these learn
  // of this process's end otherwise.
  void fail_all(const Error& cause) noexcept;
  // Returns one line on what this process does: the most severe status of all groups, or kIdle.
  static constexpr std::string_view kIdle = "no operation in flight";
  std::string status() const;
  // Returns a report of flow control and of all groups, in several lines.
  std::string dump() const;
  // Returns the states of the groups as a JSON array; see GroupSlot::snapshot(). Of idle groups it
  // has the first few only.
  std::string snapshot() const;
  // Returns the latest ops as JSON; see OpLog::json().
  std::string latest_ops() const {
    check_locked();
    return state_.log.json();
  }

  // Returns the statistics of all ops and peers as a JSON object. `groups` are those with ops, the
  // ones with the most ops first. Each has name, id, rank, and ops (see OpStatistics::json()). The
  // others and those that have been destroyed are together under the name "others" without an id.
  // For `peers` see PeerTrafficTable::json().
  std::string statistics() const;

  // Returns what the groups that have formed have called since a time. They are
  // CallSample::kMostGroups at most: those that called last.
  std::vector<GroupCalls> calls_since(TimePoint since) const;

  // Implements TransportDelegate.
  void on_message(ContextId from, ConstBytes header, const Payload& payload) override;
  bool takes_more() const override { return !state_.any_ended; }
  void on_sent(SendId send_id, const Error& error) override;
  void on_connection_lost(std::string_view transport, ContextId peer, const Error& cause) override;

  // Implements GroupDelegate.
  ProgressState& progress_state() override { return state_; }
  void flood(const Notice& notice) override;
  void finish_op(const std::shared_ptr<Op>& op, Error error) noexcept override;
  void on_busy() noexcept override { watch_all(); }

 private:
  // Calls `body`. If it throws, fails all groups.
  template <typename Body>
  void fail_if_thrown(const Body& body);
  // Calls `body`. If it throws, fails the slot's group.
  template <typename Body>
  void fail_if_thrown(const std::shared_ptr<GroupSlot>& slot, const Body& body) {
    try {
      body();
    } catch (...) {
      slot->fail(current_exception_error(), /*tell_others=*/true);
    }
  }
  // Calls `each` for every group that has formed, and watches all slots.
  template <typename Each>
  void for_each_group(const Each& each);
  bool any_forming() const;
  // Adds slots to the list of those that may be busy.
  void watch(GroupSlot& slot) const noexcept;
  void watch_all() const noexcept;
  // Returns the slots that are not idle, and drops the others from the list.
  const std::vector<GroupSlot*>& busy() const;
  // Runs the callbacks of ended ops on the task pool; retried by tick().
  void call_back() noexcept;
  // Frees executions that have ended, unless there are none.
  void release_ended();

  void check_locked() const {
    check(lock_.held_by_this_thread(), "work without the progress lock");
  }

  ProgressLock& lock_;
  DispatcherDelegate& delegate_;
  ProgressState state_;  // outlives the groups, as their OpExecutions use it
  std::set<std::shared_ptr<GroupSlot>> slots_;
  mutable std::vector<GroupSlot*> watched_;  // capacity for all slots; the ones not listed are idle
  std::map<UnknownGroupMessages::GroupKey, Group*> by_key_;  // groups that have formed
  UnknownGroupMessages unknown_groups_{state_.scratch};
  // Notices of groups here, to be delivered to other ranks of this Context.
  std::vector<Notice> own_notices_;
  std::shared_ptr<Op> to_call_back_;  // list of ended ops with callbacks, linked by Op::next
  std::map<ContextId, Error> lost_;   // processes that were lost, with the cause
  std::set<ContextId> left_;          // processes that ended in good order
  TimePoint next_tick_ = state_.now;
};

// Calls `body` and returns its result. An exception, such as std::bad_alloc, must not end the
// process. It fails all groups, because it is unclear which one it belongs to, and the result is
// true. `dispatcher` is a Dispatcher, which also uses this function itself.
template <typename Groups, typename Body>
bool fail_all_if_thrown(Groups& dispatcher, Body&& body) {
  try {
    return body();
  } catch (...) {
    dispatcher.fail_all(current_exception_error());
    return true;
  }
}

}  // namespace ringdist
