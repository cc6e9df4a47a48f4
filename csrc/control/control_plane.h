// State of the control plane, and the object that connects its parts: connections, peers, groups,
// requests, failure detector, gossip and graceful shutdown. Used by the control thread only, which
// passes it events, commands and the time (see ControlThread).
#pragma once

#include <cstdint>
#include <deque>
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
#include "control/snapshot_relay.h"
#include "os/epoll.h"
#include "os/event_loop.h"

namespace ringdist {

// Control plane of one process, without a thread or locks. Each part decides about one matter; this
// class passes events between them and runs the tick.
class ControlPlane final : private ConnectionManager::Delegate, private ControlRequests::Delegate {
 public:
  // Connections and ends of processes are events of `epoll`, which outlives the object, as `events`
  // does.
  ControlPlane(uint64_t id, const Config& config, ControlDelegate& events, const Epoll& epoll,
               std::shared_ptr<const TlsKey> tls_key = nullptr);

  // Opens the listening sockets of this process.
  Error listen(const std::string& local_ip);
  // Adds a socket that listens at another address of this host.
  void add_listener(Fd tcp) { sockets_.add_listener(std::move(tcp)); }
  uint64_t id() const { return id_; }
  const std::string& unix_name() const { return sockets_.unix_name(); }
  const std::string& tcp_address() const { return sockets_.tcp_address(); }

  // An iteration of the event loop calls begin_turn(), then events and commands, then end_turn().
  // If any of them throws, such as std::bad_alloc, the object can only be ended by abort().
  Duration next_sleep() const { return timer_.sleep(); }
  void begin_turn(TimePoint now);
  void on_event(const Epoll::Event& event);
  void end_turn();

  // Commands; see the functions of ControlThread. A request gets its answer later, through its
  // promise.
  void prove(const ControlRequest& request, const std::string& unix_name);
  void connect(const ControlRequest& request, int rank, const std::vector<ControlMember>& members);
  void disconnect(uint64_t nonce, int rank);
  void flood(const std::vector<std::byte>& payload);
  void give_up(uint64_t id, const std::string& cause) {
    departures_.learn_lost(id, cause, nullptr);
  }
  // See ConnectionManager::drain_connections().
  bool drain_connections() { return sockets_.drain_connections(); }
  // Starts the graceful shutdown. `answer` is set once it is over.
  void leave(bool process_ends, std::shared_ptr<std::promise<Error>> answer);
  // Ends everything when the thread ends, and answers all pending requests.
  void end();
  // Does the same after an exception. Reports this process as lost to the processes that it is
  // connected to. May be called again if it throws.
  void abort(const std::string& cause);
  // Ends the thread for handshakes after that, because exit() ends OpenSSL, which it uses.
  void end_handshakes() { sockets_.end_handshakes(); }
  // Returns lines for a human on what this process and its control plane do.
  std::string report();

 private:
  // ConnectionManager::Delegate
  ConnectionManager::AcceptDecision admit(const ControlConnection& connection,
                                          const ControlHello& hello) override;
  void on_reached(ControlConnection& connection) override;
  void on_open(ControlConnection& connection) override;
  void on_frame(ControlConnection& connection, const Frame& frame) override;
  void on_membership_stream(ControlConnection& connection, const ControlHello& hello) override;
  void on_data_socket(Stream socket, ConstBytes hello) override {
    events_.on_data_socket(std::move(socket), hello);
  }
  void on_closed(const ControlConnection& connection, bool was_reached, int errno_value,
                 const std::string& reason) override;

  // ControlRequests::Delegate
  void on_linked(uint64_t nonce) override { gossip_.learn_formed(nonce, {id_}, nullptr); }

  // Answers a request for a dump with report(), and one for a snapshot through SnapshotRelay. Then
  // the connection closes.
  void on_client(ControlConnection& connection, const Frame& frame);
  // Handles the announcement that the peer's process is about to end.
  void on_exit_announced(ControlConnection& connection);
  // During the graceful shutdown: reports processes that have announced their end as left.
  void tell_of_ends();
  // Handles a report that some process was lost or has left. Reports about others count only from
  // members of a common group. A connection may outlive its groups.
  void on_departure(ControlConnection& connection, const Frame& frame);
  void learn_departure(FrameType type, const PeerDeparture& departure,
                       const ControlConnection* from);
  // Handles the reports that came before there was a common group with their senders.
  void learn_pending_departures();
  // Reads what process `id` itself has sent, before a report of `teller` about it counts.
  void drain_before_report(uint64_t id, const ControlConnection& teller);
  // Handles the event that a process of this host has ended.
  void on_process_ended(uint64_t id);

  // Does the periodic work.
  void tick();
  // Does the part of the tick that ends with the graceful shutdown.
  void upkeep();
  // Maintains the groups: forgets old ones, dials missing links, checks hosts.
  void keep_groups();
  void forget_left();
  // Returns true if something waits that the next regular tick would find too late.
  bool unsettled() const;
  // Returns the interval of heartbeats inside the host.
  Duration local_heartbeat() const;
  TimePoint now() const { return timer_.now(); }  // time of this iteration

  // Returns false if a connection in the name of `member` cannot come from its process. Then it
  // logs that, at most once a second.
  bool may_be(const ControlConnection& connection, const ControlMember& member);
  // Closes connections that members of a new group hold because they named no group, or one that
  // this process has left. Other connections, which name the new group, take their place.
  void close_held(const LinkTopology& roster);

  struct PendingDeparture {
    uint64_t from;
    FrameType type;
    PeerDeparture departure;
  };

  const uint64_t id_;
  const Config::PortRange ports_;
  ControlDelegate& events_;
  TickTimer timer_{Clock::now()};
  Duration paused_{};       // for which this process has stood still, as far as this thread noticed
  Duration run_delay_{};    // run_delay_of_this_thread() when it last noticed that
  bool hears_out_ = false;  // in drain_before_report(), which must not recurse
  ConnectionManager sockets_;
  ControlHistory history_;
  ControlPeerTable processes_;
  ControlGroupTable groups_;
  FormationBarrier formation_barrier_;
  ControlGossip gossip_;
  ConnectionDemand demand_;
  DepartureHandler departures_;
  std::deque<PendingDeparture> pending_departures_;  // oldest first
  TimePoint warned_at_{};                            // of may_be()
  ControlDialer dialer_;
  FailureDetector failure_detector_;
  RequestEvaluator evaluator_;
  ControlRequests requests_;
  SnapshotRelay snapshots_;
  GracefulShutdown shutdown_;
};

}  // namespace ringdist
