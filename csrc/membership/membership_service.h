// Membership service of a process: runs the consensus of all its groups on a thread of its own. The
// thread starts with the first begin() or adopt() and sleeps between agreements; a process that
// needs none pays nothing.
//
// All functions may be called from any thread, with the exceptions noted below. Owned by the
// Context, which must leak it in a forked child. There every call does nothing or returns an Error.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/thread_annotations.h"
#include "membership/group_consensus.h"
#include "membership/membership_transport.h"
#include "os/epoll.h"
#include "os/event_loop.h"
#include "os/fork_guard.h"

namespace ringdist {

// Holds the GroupConsensus of each registered group and the MembershipTransport that they share. A
// group's consensus is created when a message or a call needs it.
class MembershipService final : private MembershipTransport::Delegate {
 public:
  // Passes all connections that processes of this host have dialed to adopt(), then calls `then` on
  // any thread. Its argument is false if that did not work for all of them. See
  // ControlThread::drain_connections().
  using DrainConnections = std::function<void(std::function<void(bool)> then)>;

  // `self` is the id of this process' Context.
  MembershipService(ProcessId self, const PaxosTimeouts& timeouts,
                    DrainConnections drain_connections,
                    std::shared_ptr<const TlsKey> tls_key = nullptr);
  ~MembershipService() override { stop(); }
  MembershipService(const MembershipService&) = delete;
  MembershipService& operator=(const MembershipService&) = delete;

  // Registers a group that may have later generations. This process answers for the group until
  // unregister_group(); afterwards it replies to queries that it takes no part in it any more. With
  // no initial members the process is a newcomer, and begin() makes it send join requests.
  void register_group(InitialMembers origin, std::shared_ptr<GroupConsensusDelegate> owner);
  // Ends this process' part in the group. With `for_good` the process was a member, so its votes
  // may still count in a pending decision. It then cannot join the group again under the same id.
  void unregister_group(uint64_t group_id, bool for_good);
  // Returns true if unregister_group() was called with `for_good` for that group.
  bool was_member(uint64_t group_id) const {
    if (mark_.forked()) return false;
    std::lock_guard lock(mutex_);
    return left_.contains(group_id);
  }

  // Starts the agreement on the generation after `generation`. Returns kSystem if no thread can be
  // started, kInvalidArgument if the group is not registered, kAborted after stop() and in a forked
  // child.
  Error begin(uint64_t group_id, uint32_t generation);
  // Takes over a connection that another process has dialed for membership messages. A connection
  // over TCP is closed unless it comes from the address of a process of a registered group, or from
  // one that may join it. Each message is compared with the connection and with its group.
  void adopt(FramedSocket stream, const ControlHello& hello, LinkKind kind);
  // Records that the control plane has lost `process`, or that it has left.
  void give_up(ProcessId process);
  // Returns why there is no next generation yet: "no quorum: 1 of 4 voters, 3 needed; ...". Returns
  // "" if the group has no consensus under way or the thread does not answer within 1 s.
  std::string describe(uint64_t group_id);

  // Ends the thread; from then on this process takes part in no agreement. May be called again, but
  // by one thread at a time, and not by the membership thread.
  void stop();

 private:
  // A registered group, whether or not it has a GroupConsensus by now.
  struct RegisteredGroup {
    InitialMembers origin;
    std::shared_ptr<GroupConsensusDelegate> owner;
  };
  // Starts the thread if it does not run. Returns success without a thread after stop().
  Error start() RINGDIST_REQUIRES(mutex_);
  // Decides about a connection over TCP, by the group that its hello frame names.
  bool admits(const MessageOrigin& from, uint64_t group_id) RINGDIST_REQUIRES(mutex_);
  // Records that a message of `process` is lost, so that its death proves nothing.
  void distrust_death(ProcessId process) RINGDIST_REQUIRES(mutex_);
  // Logs, at most once a second, that a message was dropped. `known` has the addresses of the
  // process that it names.
  void log_dropped(const MessageOrigin& from, const std::optional<PeerAddress>& known)
      RINGDIST_REQUIRES(mutex_);
  // Runs `task` on the thread. Returns false if there is no thread.
  bool post(TaskQueue::Task task) { return tasks_->post(std::move(task)); }
  // The functions below run on the membership thread. turn() is one iteration of its event loop.
  void run();
  void turn();
  Duration sleep() const;
  // Returns the consensus of a group, which it creates if the group is registered, or null.
  GroupConsensus* find(uint64_t nonce);
  // Returns true if the process at these addresses has dialed that connection.
  bool is_sender(const MessageOrigin& from, const PeerAddress& known);
  // Replies to a message for a group in which this process has no part any more.
  void send_withdrawn(uint64_t group_id, ProcessId to);
  // Runs `body` and logs an exception of it. Lost messages are repeated by their senders.
  template <typename Body>
  void contain(const Body& body);
  // Reports the death of `process`, once all that it had sent has been taken in.
  void look_again(ProcessId process, bool all_taken_in);

  // MembershipTransport::Delegate
  void on_message(const MessageOrigin& from, ConstBytes message) override;
  void on_deserted(ProcessId process) override;

  const ProcessId self_;
  const PaxosTimeouts timeouts_;
  const DrainConnections drain_connections_;
  const std::shared_ptr<const TlsKey> tls_key_;
  ForkMark mark_;

  mutable std::mutex mutex_;  // lock order: before the mutexes of owners
  std::map<uint64_t, RegisteredGroup> enrolled_ RINGDIST_GUARDED_BY(mutex_);  // by group id
  std::set<ProcessId> given_up_ RINGDIST_GUARDED_BY(mutex_);
  // Processes with messages that could not all be taken in, so their deaths prove nothing.
  std::set<ProcessId> undrained_ RINGDIST_GUARDED_BY(mutex_);
  // Unregistered groups and the addresses of their processes: the latest 64, oldest first.
  std::deque<std::pair<uint64_t, std::map<ProcessId, PeerAddress>>> withdrawn_
      RINGDIST_GUARDED_BY(mutex_);
  std::set<uint64_t> left_ RINGDIST_GUARDED_BY(mutex_);  // unregistered for good
  bool stopping_ RINGDIST_GUARDED_BY(mutex_) = false;
  TimePoint dropped_at_ RINGDIST_GUARDED_BY(mutex_){};  // last log line of log_dropped()
  const std::shared_ptr<TaskQueue> tasks_ = std::make_shared<TaskQueue>();
  std::unique_ptr<Epoll> epoll_;  // created with the thread, and only once
  std::thread thread_;

  // Used by the thread only.
  std::unique_ptr<MembershipTransport> transport_;
  std::map<uint64_t, std::unique_ptr<GroupConsensus>> groups_;
  std::set<ProcessId> dead_;  // processes of this host with a proven death
  // Pids of processes of this host, as the kernel reports them for their listening sockets.
  std::map<ProcessId, pid_t> listeners_;
};

}  // namespace ringdist
