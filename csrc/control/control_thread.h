// The control thread: turns of events, commands of other threads, and time, for a ControlPlane,
// which is its alone. Nothing but the command queue needs a lock. What is thrown in a turn ends the
// connection or the call that it was about (exception_guard.h), and the thread goes on.
//
// Owned by Control, which must leak it in a forked child.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/cancellable_deadline.h"
#include "base/config.h"
#include "base/thread_annotations.h"
#include "control/control_plane.h"
#include "control/control_report.h"
#include "control/exception_guard.h"
#include "os/epoll.h"
#include "os/eventfd.h"
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

}  // namespace ringdist
