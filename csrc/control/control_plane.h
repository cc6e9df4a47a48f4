// The control plane of a process: who is connected, who is in which group, who is gone, what goes
// around. One thread's: the control thread, which tells it of events, of commands and of time.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "control/connection_demand.h"
#include "control/connection_manager.h"
#include "control/control_delegate.h"
#include "control/control_groups.h"
#include "control/control_history.h"
#include "control/control_peers.h"
#include "control/control_requests.h"
#include "control/failure_detector.h"
#include "control/gossip.h"
#include "control/graceful_shutdown.h"
#include "os/epoll.h"
#include "os/event_loop.h"

namespace ringdist {

class ControlPlane final : private ConnectionManager::Delegate, private ControlRequests::Delegate {
 public:
  // Connections and ends of processes are events of `epoll`, which outlives it, as `events` and
  // `guard` do.
  ControlPlane(uint64_t id, const Config& config, ControlDelegate& events, const Epoll& epoll,
               ExceptionGuard& guard);

  Error listen(const std::string& local_ip);
  void add_listener(Fd tcp) { sockets_.add_listener(std::move(tcp)); }
  uint64_t id() const { return id_; }
  const std::string& unix_name() const { return sockets_.unix_name(); }
  const std::string& tcp_address() const { return sockets_.tcp_address(); }

  // A turn: its beginning, then events and commands, then the rest. Of these only commands throw,
  // and prove() and connect() answer instead.
  Duration next_sleep() const { return timer_.sleep(); }
  void begin_turn(TimePoint now);
  void on_event(const Epoll::Event& event);
  void end_turn();

  void prove(const ControlRequest& request, const std::string& unix_name);
  void connect(const ControlRequest& request, int rank, const std::vector<ControlMember>& members);
  void disconnect(uint64_t nonce, int rank);
  void flood(const std::vector<std::byte>& payload);
  void give_up(uint64_t id, const std::string& cause) {
    departures_.learn_lost(id, cause, nullptr);
  }
  // As of ConnectionManager.
  bool drain_connections() { return sockets_.drain_connections(); }
  // `answer`: once goodbye is said.
  void leave(bool process_ends, std::shared_ptr<std::promise<Error>> answer);
  // The thread ends: whoever waits gets an answer.
  void end();
  // What this process and its control plane do, in lines.
  std::string report();

 private:
  // ConnectionManager::Delegate
  ConnectionManager::AcceptDecision admit(const ControlConnection& connection,
                                          const ControlHello& hello) override;
  void on_reached(ControlConnection& connection) override;
  void on_open(ControlConnection& connection) override;
  void on_frame(ControlConnection& connection, const Frame& frame) override;
  void on_letters(ControlConnection& connection, const ControlHello& hello) override;
  void on_closed(const ControlConnection& connection, bool was_reached, int errno_value,
                 const std::string& reason) override;

  // ControlRequests::Delegate
  void on_linked(uint64_t nonce) override { gossip_.learn_formed(nonce, {id_}, nullptr); }

  void on_dump_request(ControlConnection& connection);
  void on_exits(ControlConnection& connection);
  void tell_of_ends();
  void on_fate(ControlConnection& connection, const Frame& frame);
  void drain_before_report(uint64_t id, const ControlConnection& teller);
  void on_exit(uint64_t id);

  void tick();
  void upkeep();
  void keep_groups();
  void forget_left();
  bool unsettled() const;
  Duration local_heartbeat() const;
  TimePoint now() const { return timer_.now(); }  // of this turn

  const uint64_t id_;
  ControlDelegate& events_;
  ExceptionGuard& guard_;
  TickTimer timer_{Clock::now()};
  bool hears_out_ = false;
  ConnectionManager sockets_;
  ControlHistory history_;
  ControlPeerTable processes_;
  ControlGroupTable groups_;
  FormationBarrier formation_barrier_;
  ControlGossip gossip_;
  ConnectionDemand demand_;
  DepartureHandler departures_;
  ControlDialer dialer_;
  FailureDetector failure_detector_;
  RequestEvaluator evaluator_;
  ControlRequests requests_;
  GracefulShutdown shutdown_;
};

}  // namespace ringdist
