// Gossip: each process passes on what is new to it, and sends all that is still relevant to a new
// connection. Also the handling of departures. Control thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/connection_demand.h"
#include "control/control_connection.h"
#include "control/control_delegate.h"
#include "control/control_groups.h"
#include "control/control_history.h"
#include "control/control_peers.h"
#include "control/failure_detector.h"
#include "os/event_loop.h"
#include "os/tls_key.h"

namespace ringdist {

// Spreads floods, departures and formation news over the open connections.
class ControlGossip {
 public:
  // The references must outlive the object.
  // With a certificate as `key`, notices are signed by the process that they come from.
  ControlGossip(uint64_t id, ConnectionSender& sender, ControlHistory& history,
                FormationBarrier& formation_barrier, ControlGroupTable& groups,
                ControlDelegate& events, std::shared_ptr<const TlsKey> key = nullptr)
      : id_(id),
        sender_(sender),
        history_(history),
        formation_barrier_(formation_barrier),
        groups_(groups),
        events_(events),
        signing_(key && key->certificate() ? std::move(key) : nullptr) {}

  // Sends a notice of this process to all processes. One that is too long is logged and dropped.
  void flood(const std::vector<std::byte>& payload, TimePoint now);
  // Handles another process' flood: passes it on and delivers it to the delegate, once. Inside a
  // host it skips those processes that have it from the sender. If every process repeated it to
  // all, n notices would cause n^3 messages.
  void on_flood(ControlConnection& from, const Frame& frame, TimePoint now);

  // Pass on that a process was lost or left, which the history has recorded. A process that left
  // has notified its own host itself.
  void pass_on_lost(uint64_t id, const std::string& cause, const ControlConnection* from);
  void pass_on_left(uint64_t id, const ControlConnection* from);

  // Records that processes have found all others of a group, and passes it on. Inside a host every
  // process notifies every other. Representatives pass on what comes from other hosts, and what
  // goes there. Frames of one link stay in order, so a process' formation arrives before its end.
  void learn_formed(uint64_t nonce, const std::vector<uint64_t>& processes,
                    const ControlConnection* from);
  // Handles a kFormed frame of `from`; malformed ones are ignored.
  void on_formed(ControlConnection& from, const Frame& frame);
  // Returns true if all members of the group have found each other. Sets ControlGroup::formed.
  bool formed(uint64_t nonce, ControlGroup& group);
  // Passes on formation news that came before this process had the group's member list.
  void tell_members(uint64_t nonce);

  // Sends a new connection all that is still relevant.
  void bring_up_to_date(ControlConnection& connection, TimePoint now);

 private:
  // Returns the notice in a flood, if the process that it names has signed it. Otherwise logs
  // the signer, at most once a second.
  std::optional<std::vector<std::byte>> open(const FloodRecord& flood, TimePoint now);
  // Returns true if a process of this host receives the news without this process.
  using Heard = std::function<bool(uint64_t peer)>;
  // Sends `frame` on all open connections except `from` and local ones for which `heard` returns
  // true.
  void pass_on(ConstBytes frame, const ControlConnection* from, const Heard& heard);
  // Returns the predicate for a flood that came over `from`: true for processes of this host that
  // have the flood already.
  Heard who_heard(ConstBytes payload, const ControlConnection& from);
  // Returns true if all processes of this host have a connection to the process, as far as groups
  // of this process show.
  bool host_has_met(uint64_t id);
  // Sends formation news to those members of the group that are connected and need them.
  void tell_formed(uint64_t nonce, const LinkTopology& roster,
                   const std::vector<uint64_t>& processes, const ControlConnection* from);

  const uint64_t id_;
  ConnectionSender& sender_;
  ControlHistory& history_;
  FormationBarrier& formation_barrier_;
  ControlGroupTable& groups_;
  ControlDelegate& events_;
  const std::shared_ptr<const TlsKey> signing_;  // null without a certificate
  TimePoint refused_at_{};                       // time of the last line of open()
  uint64_t sequence_ = 0;                        // number of the next flood
};

// Handles departures. The first report about a process is recorded, passed on and delivered to the
// ControlDelegate; then its connections close. Control thread only.
class DepartureHandler final : public FailureDetector::Delegate {
 public:
  // The references must outlive the object.
  DepartureHandler(uint64_t id, ControlHistory& history, const ControlGroupTable& groups,
                   const ControlPeerTable& processes, ConnectionDemand& demand,
                   ControlGossip& gossip, TickTimer& pace, ControlDelegate& events)
      : id_(id),
        history_(history),
        groups_(groups),
        processes_(processes),
        demand_(demand),
        gossip_(gossip),
        timer_(pace),
        events_(events) {}

  // Record a departure, pass it on and notify the ControlDelegate, once per process. `from` is the
  // connection that reported it, which needs no report; it is null if this process found out
  // itself.
  void learn_lost(uint64_t id, const std::string& cause, const ControlConnection* from);
  void learn_left(uint64_t id, const ControlConnection* from);
  // FailureDetector::Delegate
  void learn_lost(uint64_t id, const std::string& cause) override {
    learn_lost(id, cause, nullptr);
  }
  void learn_left(uint64_t id) override { learn_left(id, nullptr); }

 private:
  // Closes what was needed for the process, and forgets old departures.
  void drop_links(uint64_t id);

  const uint64_t id_;
  ControlHistory& history_;
  const ControlGroupTable& groups_;
  const ControlPeerTable& processes_;
  ConnectionDemand& demand_;
  ControlGossip& gossip_;
  TickTimer& timer_;
  ControlDelegate& events_;
};

}  // namespace ringdist
