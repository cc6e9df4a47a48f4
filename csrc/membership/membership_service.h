// The part of a process in the agreements of its groups: a thread that runs from the first one on,
// and sleeps between them. Until then it costs nothing. Any thread, unless said otherwise.
//
// Owned by the Context, which must leak it in a forked child; there every call does nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
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

class MembershipService final : private MembershipTransport::Delegate {
 public:
  // Has what processes of this host have dialed handed to adopt(), then calls `then`, on any
  // thread: with false where that was not all of it. As Control::sweep.
  using DrainConnections = std::function<void(std::function<void(bool)> then)>;

  MembershipService(ProcessId self, const PaxosTimeouts& timeouts,
                    DrainConnections drain_connections);
  ~MembershipService() override { stop(); }
  MembershipService(const MembershipService&) = delete;
  MembershipService& operator=(const MembershipService&) = delete;

  // A group may have later generations: this process answers for it from now on, until
  // unregister_group(): who asks after that is told that it has no part in it any more. Of a
  // candidate begin() makes it knock.
  void register_group(InitialMembers origin, std::shared_ptr<GroupConsensusDelegate> owner);
  // `for_good`: this process was a member, whose votes may count in what is decided yet. It cannot
  // be another one.
  void unregister_group(uint64_t group_id, bool for_good);
  bool was_member(uint64_t group_id) const {
    std::lock_guard lock(mutex_);
    return left_.contains(group_id);
  }

  // Somebody here wants the generation after that one. Error: kSystem, there is no thread to be
  // had; kInvalidArgument, the lineage is not known.
  Error begin(uint64_t group_id, uint32_t generation);
  // Another process has dialed.
  void adopt(FramedSocket stream, const ControlHello& hello, LinkKind kind);
  // The control plane has lost it, or it has left.
  void give_up(ProcessId process);
  // "no quorum: 1 of 4 voters, 3 needed; ...": why there is no next generation yet.
  std::string describe(uint64_t group_id);

  // Ends the thread. From then on this process is in no agreement. Idempotent.
  void stop();

 private:
  struct RegisteredGroup {
    InitialMembers origin;
    std::shared_ptr<GroupConsensusDelegate> owner;
  };
  Error start() RINGDIST_REQUIRES(mutex_);
  // Of a process of another host: only one that belongs to a group of ours, or may come to it,
  // knows its name.
  bool admits(const ControlHello& hello) RINGDIST_REQUIRES(mutex_);
  bool post(TaskQueue::Task task) { return tasks_->post(std::move(task)); }
  void run();
  void turn();
  Duration sleep() const;
  // Null: nobody here answers for it.
  GroupConsensus* find(uint64_t nonce);
  void send_withdrawn(uint64_t group_id, ProcessId to);
  template <typename Body>
  void contain(const Body& body);
  void look_again(ProcessId process, bool all_taken_in);

  // MembershipTransport::Delegate
  void on_letter(ProcessId from, ConstBytes letter) override;
  void on_deserted(ProcessId process) override;

  const ProcessId self_;
  const PaxosTimeouts timeouts_;
  const DrainConnections drain_connections_;
  ForkMark mark_;

  mutable std::mutex mutex_;  // before those of owners
  std::map<uint64_t, RegisteredGroup> enrolled_ RINGDIST_GUARDED_BY(mutex_);
  std::set<ProcessId> given_up_ RINGDIST_GUARDED_BY(mutex_);
  // What they said was not all taken in: their deaths prove nothing.
  std::set<ProcessId> undrained_ RINGDIST_GUARDED_BY(mutex_);
  // Group consensuses, and the processes of each: the latest.
  std::deque<std::pair<uint64_t, std::map<ProcessId, PeerAddress>>> withdrawn_
      RINGDIST_GUARDED_BY(mutex_);
  std::set<uint64_t> left_ RINGDIST_GUARDED_BY(mutex_);  // for good
  bool stopping_ RINGDIST_GUARDED_BY(mutex_) = false;
  const std::shared_ptr<TaskQueue> tasks_ = std::make_shared<TaskQueue>();
  std::unique_ptr<Epoll> epoll_;  // made once, with the thread
  std::thread thread_;

  // The thread's.
  std::unique_ptr<MembershipTransport> transport_;
  std::map<uint64_t, std::unique_ptr<GroupConsensus>> groups_;
  std::set<ProcessId> dead_;
};

}  // namespace ringdist
