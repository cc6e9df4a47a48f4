// The control thread: turns of events, commands of other threads, and time, for a ControlPlane,
// which is its alone. Nothing but the command queue needs a lock. What is thrown in a turn ends the
// connection or the call that it was about (exception_guard.h), and the thread goes on.
//
// Owned by Control, which must leak it in a forked child.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/error.h"
#include "base/thread_annotations.h"
#include "control/control_delegate.h"
#include "control/control_groups.h"
#include "control/control_plane.h"
#include "control/control_report.h"
#include "os/epoll.h"
#include "os/event_loop.h"
#include "os/fork_guard.h"
#include "os/signal.h"

namespace ringdist {

class ControlThread {
 public:
  static Result<std::unique_ptr<ControlThread>> create(uint64_t context_id, const Config& config,
                                                       const std::string& local_ip,
                                                       ControlDelegate& events);
  ~ControlThread() { stop(); }
  ControlThread(const ControlThread&) = delete;
  ControlThread& operator=(const ControlThread&) = delete;

  uint64_t id() const { return plane_.id(); }
  const std::string& unix_name() const { return plane_.unix_name(); }
  const std::string& tcp_address() const { return plane_.tcp_address(); }
  Result<std::string> listen(const std::string& ip);

  // From other threads; as of Control. The blocking ones answer soon after their time is over at
  // the latest.
  Error prove(uint64_t peer, std::string unix_name, TimePoint deadline);
  Error connect(uint64_t nonce, int my_rank, std::vector<ControlMember> members,
                const CancellableDeadline& deadline);
  void disconnect(uint64_t nonce, int rank);
  void flood(std::vector<std::byte> payload);
  void give_up(uint64_t id, std::string cause);
  void drain_connections(std::function<void(bool)> then);
  void leave(bool process_ends);
  void stop();

 private:
  ControlThread(uint64_t id, const Config& config, ControlDelegate& events, Epoll epoll,
                EventFd wake, EventFd signalled);

  Error open(const std::string& local_ip);
  void run();
  void turn();
  void handle(const Epoll::Event& event);
  void finish();
  bool post(std::function<void()> command);
  std::vector<std::function<void()>> take_commands(bool last);
  Error ask(ControlRequest request, std::function<void(const ControlRequest&)> begin);

  ExceptionGuard guard_;
  Epoll epoll_;
  const EventFd wake_;
  const EventFd signalled_;
  ControlPlane plane_;
  StderrReport report_;

  std::mutex mutex_;  // a leaf: nothing is called while it is held
  std::vector<std::function<void()>> commands_ RINGDIST_GUARDED_BY(mutex_);
  bool finished_ RINGDIST_GUARDED_BY(mutex_) = false;
  std::mutex join_mutex_;  // one stop() joins, others wait
  std::atomic<bool> stopping_{false};
  std::unique_ptr<SignalWatch> signal_watch_;
  std::thread thread_;
};

// The process' failure detector and its way to spread notices. It keeps a connection to every
// process of the host (AF_UNIX) and a few links to other hosts (TCP), notices who dies, falls
// silent or leaves, and floods payloads to every process that can be reached. It knows processes
// (Context ids) and, of groups, only the members; what a payload means is its owner's business.
//
// Owned by the Context. One thread of its own, which needs neither the GIL nor any engine lock, so
// that a busy lane does not look dead. All calls may come from any thread but that one (flood also
// from it). In a forked child every call is an Error or does nothing.
class ControlThread;

class Control {
 public:
  using Events = ControlDelegate;
  using Member = ControlMember;

  // Listens and runs its thread from here on. `local_ip` is a numeric address of this host that
  // other hosts can reach. `events` must outlive the Control.
  static Result<std::unique_ptr<Control>> start(uint64_t context_id, const Config& config,
                                                std::string local_ip, Events& events);
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  uint64_t context_id() const;
  std::string unix_name() const;    // "@ringdist-<pid>-<context id>"
  std::string tcp_address() const;  // "ip:port", of start()
  // Listens at another numeric address of this host, too; returns "ip:port". Once per address.
  Result<std::string> listen(const std::string& ip);

  // Blocks until that process has answered on its abstract socket with our uid and this id, which
  // proves that it shares our host; the connection stays. It answers whatever groups it knows.
  Error prove_same_host(uint64_t peer_context_id, std::string unix_name, TimePoint deadline);

  // Blocks until the processes of my host are connected and the links between hosts in which this
  // process takes part are up (links_of in link_topology.h), for all members of the group: whoever
  // ends after this has returned takes nothing along that another member still needs to find the
  // rest. The Error blames a rank.
  Error connect_group(uint64_t nonce, int my_rank, std::vector<Member> members,
                      const CancellableDeadline& deadline);

  // Also before connect_group() has returned. Forgets the group once all members have heard so, or
  // a minute later; connections that no group of either side needs are closed. What was flooded
  // before has been given to the kernel when this returns, so it is not lost with the process:
  // unless a peer's socket is full, or 1 s was not enough.
  void disconnect_group(uint64_t nonce, int my_rank);

  // Delivers the payload once to every other process that can be reached. A payload may also reach
  // processes that join up to a minute later. It starts with the nonce of the group that it is
  // about: inside a host, once its members have found each other, nobody else need hear it.
  void flood(std::vector<std::byte> payload);

  // Treats that process as lost, for this cause, and notifies all processes that can be reached,
  // that one included. It counts as silent, not as dead.
  void give_up(uint64_t context_id, std::string cause);

  // Takes in what the processes of this host have dialed, and said as the first thing, before this
  // call: what is for the owner it has when `then` is called, on the control thread. Its argument
  // is false where that could not all be done. Nothing once the thread has ended.
  void drain_connections(std::function<void(bool)> then);

  // Says goodbye on all connections and flushes them for at most 200 ms; nothing is reported after.
  // `process_ends`: connections stay open until the kernel closes them, which tells others when.
  void leave(bool process_ends = false);
  // Ends the thread, which others see as silence unless leave() came first. Idempotent.
  void stop();

 private:
  Control(std::unique_ptr<ControlThread> loop);

  std::unique_ptr<ControlThread> loop_;
  ForkMark mark_;
};

}  // namespace ringdist
