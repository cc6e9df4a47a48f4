// Control plane of a process behind a thread-safe interface, and the thread that runs it. The class
// Control is what the rest of the program uses; ControlThread is its implementation.
//
// ControlThread runs an event loop for a ControlPlane, which no other thread touches: socket
// events, commands of other threads, and ticks. So only the command queue needs a lock. An
// exception on the thread, such as std::bad_alloc, ends the control plane and all groups of the
// process. Its state may be incomplete then, and a failure detector must not miss anything.
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

// The control plane of a process and its thread: its failure detector, and its way to send notices
// to all processes. It keeps a connection to every process of the host (AF_UNIX) and a few
// connections to other hosts (TCP). It notices processes that die, fall silent or leave, and floods
// notices to every process that can be reached.
//
// It deals with processes (Context ids). Of groups it needs only the members, and the contents of a
// notice are up to its owner.
//
// Owned by the Context. It has a thread of its own, which needs neither the GIL nor any engine
// lock, so that a busy lane does not look dead. All calls may come from any thread but that one;
// flood() also from it. In a forked child every call returns an Error or does nothing. There the
// owner must leak the object, since its locks may be held for ever.
class ControlThread {
 public:
  // Opens the listening sockets and starts the thread. `local_ip` is a numeric address of this host
  // that other hosts can reach. `events` must outlive the ControlThread. With a `tls_key`,
  // connections between hosts are encrypted.
  static Result<std::unique_ptr<ControlThread>> start(
      uint64_t context_id, const Config& config, const std::string& local_ip,
      ControlDelegate& events, std::shared_ptr<const TlsKey> tls_key = nullptr);
  ~ControlThread() { stop(); }
  ControlThread(const ControlThread&) = delete;
  ControlThread& operator=(const ControlThread&) = delete;

  uint64_t context_id() const { return plane_.id(); }
  const std::string& unix_name() const {
    return plane_.unix_name();
  }  // "@ringdist-<pid>-<context id>"
  const std::string& tcp_address() const { return plane_.tcp_address(); }  // "ip:port", of start()
  // Listens at another numeric address of this host, too, and returns "ip:port". To be called once
  // per address.
  Result<std::string> listen(const std::string& ip);

  // Blocks until the process has answered on its abstract socket with the same uid and this id,
  // which proves that it shares this host. The connection stays open. The other process answers
  // whatever groups it is in. Returns kPeerLost if the proof fails, kTimeout at the deadline.
  Error prove_same_host(uint64_t peer_context_id, std::string unix_name, TimePoint deadline);

  // Blocks until all members of the group have their connections: to all processes of their hosts,
  // and the links between hosts that LinkTopology::links_to() assigns to them. A process that ends
  // after this call has returned takes nothing along that another member still needs to find the
  // rest. The Error blames a rank.
  Error connect_group(uint64_t nonce, int my_rank, std::vector<ControlMember> members,
                      const CancellableDeadline& deadline);

  // Ends the group for this rank; allowed before connect_group() has returned. The group is
  // forgotten once all members have been notified, or a minute later. Then connections that no
  // group of either side needs are closed.
  //
  // Notices flooded before have been given to the kernel when this returns, so they are not lost
  // with the process. The exceptions are a full socket of a peer, and a wait of more than 1 s.
  void disconnect_group(uint64_t nonce, int my_rank);

  // Delivers `payload` once to every other process that can be reached, and perhaps to processes
  // that join up to a minute later. It must start with the nonce of the group that it is about.
  // Inside a host, once the members of that group have found each other, only they need receive it.
  void flood(std::vector<std::byte> payload);

  // Treats the process as lost for this cause and notifies all processes that can be reached, that
  // one included. It counts as silent, not as dead.
  void give_up(uint64_t context_id, std::string cause);

  // Accepts all connections that processes of this host have dialed before this call, and handles
  // the first frames on them, so that membership connections reach the delegate. Then calls `then`
  // on the control thread, with false if not all could be handled. Does nothing once the thread has
  // ended.
  void drain_connections(std::function<void(bool)> then);

  // Announces a graceful shutdown on all connections and flushes them for at most 200 ms. Before
  // that it waits at most as long for links to other hosts that it has to dial. No event is
  // reported afterwards. With `process_ends` the connections stay open until the kernel closes
  // them, which shows others when the process has ended.
  void leave(bool process_ends = false);
  // Ends the thread. Others take that for silence, unless leave() was called before. Idempotent.
  void stop();

 private:
  ControlThread(uint64_t id, const Config& config, ControlDelegate& events, Epoll epoll,
                EventFd wake, EventFd signalled, std::shared_ptr<const TlsKey> tls_key);

  // Opens the listening sockets and starts the thread.
  Error open(const std::string& local_ip);
  // Body of the thread: iterations until stop(), then finish(), or fail() after an exception.
  void run();
  // Runs one iteration: waits, then handles events, commands and, if it is due, the tick.
  void turn();
  // Handles an event of the loop's own descriptors, or passes it to the ControlPlane.
  void handle(const Epoll::Event& event);
  // Runs the commands that are queued, and answers every pending request.
  void finish();
  // Ends the control plane after an exception, and notifies the delegate.
  void fail(const Error& cause) noexcept;
  // Queues a command for the control thread. Returns false after the thread has ended. Any thread.
  bool post(std::function<void()> command);
  // Returns all queued commands. With `last` no further one is accepted.
  std::vector<std::function<void()>> take_commands(bool last);
  // Runs `begin` on the control thread and blocks until the request has its answer. Returns
  // kInvalidArgument on the control thread itself, which would wait for itself.
  Error ask(ControlRequest request, std::function<void(const ControlRequest&)> begin);

  const Config::PortRange ports_;
  Epoll epoll_;
  const EventFd wake_;       // signals that commands are queued
  const EventFd signalled_;  // signals SIGUSR1, which requests a report
  ControlDelegate& events_;
  ControlPlane plane_;
  StderrReport report_;

  std::mutex mutex_;  // a leaf lock: nothing is called while it is held
  // Commands in the order of the calls. They run in one batch per iteration, after the events.
  std::vector<std::function<void()>> commands_ RINGDIST_GUARDED_BY(mutex_);
  bool finished_ RINGDIST_GUARDED_BY(mutex_) = false;  // no further command is accepted
  std::mutex join_mutex_;  // one call of stop() joins the thread, others wait
  std::atomic<bool> stopping_{false};
  std::unique_ptr<SignalWatch> signal_watch_;
  ForkMark mark_;
  std::thread thread_;
};

}  // namespace ringdist
