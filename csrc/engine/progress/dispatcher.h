// Runs the ops of all groups of a lane: gives messages to the group that they name, keeps those of
// groups that are not known yet, and works through the steps that can run.
//
// Every call comes with the lane's driver token held, which is checked.
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

// What came for groups of this process that cannot take it: they are not known here yet, or still
// form. It is kept for them, for a while.
//
// Every call comes with the lane's driver token held.
class UnknownGroupMessages {
 public:
  using GroupKey = std::pair<uint64_t, int>;  // nonce, rank: a Context may hold several ranks

  explicit UnknownGroupMessages(std::shared_ptr<ScratchPool> pool) : messages_(std::move(pool)) {}

  // Those of groups that were closed here are dropped; so are more than any group may get.
  void keep(const MessageHeader& header, const Payload& payload, TimePoint now);
  // `any_forming`: a group that was closed for one rank may be that of another.
  void keep(const Notice& notice, bool any_forming);

  // The messages of a group that has formed; they are not kept any longer.
  std::vector<UnexpectedMessage> take(const GroupKey& key) { return messages_.take(key); }
  // Calls it for each notice of that group. They stay, for its other ranks.
  template <typename Each>
  void for_each_notice(uint64_t nonce, const Each& each) const {
    for (const Notice& notice : notices_)
      if (notice.nonce == nonce) each(notice);
  }

  // Nobody waits for what comes for that rank's group.
  void close(const GroupKey& key);
  // Forgets what has been waiting for a minute, unless a group that it may be for still forms.
  void forget_old(bool any_forming, TimePoint now);
  size_t count() const { return messages_.count(); }  // of messages

 private:
  UnexpectedQueue<GroupKey> messages_;
  std::deque<std::pair<TimePoint, GroupKey>> since_;
  std::deque<Notice> notices_;
  std::deque<GroupKey> closed_;  // the last few
};

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

// What runs on a lane may throw, and must end no process.

// Runs it. What it throws (there is no memory, say) ends all groups, for nobody knows which one it
// was about. `dispatcher`: the Executor, which uses this, too.
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
