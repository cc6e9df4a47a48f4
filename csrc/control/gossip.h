// What goes around: each process passes on what is new to it, and tells a new connection all that
// is known. Control thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "control/connection_demand.h"
#include "control/control_connection.h"
#include "control/control_delegate.h"
#include "control/control_groups.h"
#include "control/control_history.h"
#include "control/control_peers.h"
#include "control/failure_detector.h"
#include "os/event_loop.h"

namespace ringdist {

class ControlGossip {
 public:
  ControlGossip(uint64_t id, ConnectionSender& voice, ControlHistory& ledger,
                FormationBarrier& arrivals, ControlGroupTable& groups, ControlDelegate& events,
                ExceptionGuard& guard)
      : id_(id),
        sender_(voice),
        history_(ledger),
        formation_barrier_(arrivals),
        groups_(groups),
        events_(events),
        guard_(guard) {}

  // A payload of ours, to all processes. One that is too long is logged and not sent.
  void flood(const std::vector<std::byte>& payload, TimePoint now);
  // Another's: passed on, and told to the owner, once. Inside a host not to those whom its speaker
  // has told: if all repeated it to all, n words would be n^3.
  void on_flood(ControlConnection& from, const Frame& frame, TimePoint now);

  // That a process died or left, which the ledger knows. Throws nothing. Who left has told its
  // host.
  void pass_on_lost(uint64_t id, const std::string& cause, const ControlConnection* from);
  void pass_on_left(uint64_t id, const ControlConnection* from);

  // Processes have found all others of a group. Inside a host everyone tells everyone;
  // representatives pass on what comes from, and goes to, other hosts. Words on one link stay in
  // order: that a process had connected is known before its end is.
  void learn_formed(uint64_t nonce, const std::vector<uint64_t>& processes,
                    const ControlConnection* from);
  void on_formed(ControlConnection& from, const Frame& frame);
  // What came before we knew whom else of the group to tell.
  void tell_members(uint64_t nonce);

  void bring_up_to_date(ControlConnection& connection, TimePoint now);
  // Tells all all that is known, if some of it could not be passed on when it came.
  void catch_up(TimePoint now);
  bool behind() const { return behind_; }

 private:
  // Of processes of this host: whether they know it without us.
  using Heard = std::function<bool(uint64_t peer)>;
  void pass_on(ConstBytes frame, const ControlConnection* from, const Heard& heard);
  bool formed(uint64_t nonce, ControlGroup& group);
  Heard who_heard(ConstBytes payload, const ControlConnection& from);
  bool host_has_met(uint64_t id);
  // Says what is known by now; if it throws, catch_up() does.
  template <typename Words>
  void run_or_retry(Words&& words) {
    if (!guard_("news were not passed on", words)) behind_ = true;
  }
  void tell_formed(uint64_t nonce, const LinkTopology& roster,
                   const std::vector<uint64_t>& processes, const ControlConnection* from);

  const uint64_t id_;
  ConnectionSender& sender_;
  ControlHistory& history_;
  FormationBarrier& formation_barrier_;
  ControlGroupTable& groups_;
  ControlDelegate& events_;
  ExceptionGuard& guard_;
  uint64_t sequence_ = 0;  // of our floods
  bool behind_ = false;
};

// Who is gone. A death or a departure counts once: it is remembered, passed on, told to the owner,
// and the process is dropped. Control thread only.
class DepartureHandler final : public FailureDetector::Delegate {
 public:
  DepartureHandler(uint64_t id, ControlHistory& ledger, const ControlGroupTable& groups,
                   const ControlPeerTable& processes, ConnectionDemand& needs,
                   ControlGossip& gossip, TickTimer& pace, ControlDelegate& events,
                   ExceptionGuard& guard)
      : id_(id),
        history_(ledger),
        groups_(groups),
        processes_(processes),
        demand_(needs),
        gossip_(gossip),
        timer_(pace),
        events_(events),
        guard_(guard) {}

  // What throws has learned nothing. `from`: who told it, and need not be told.
  void learn_lost(uint64_t id, const std::string& cause, const ControlConnection* from);
  void learn_left(uint64_t id, const ControlConnection* from);
  // FailureDetector::Delegate
  void learn_lost(uint64_t id, const std::string& cause) override {
    learn_lost(id, cause, nullptr);
  }
  void learn_left(uint64_t id) override { learn_left(id, nullptr); }

  // Of all that it has not heard of yet: where it throws, again at the next tick.
  void report_departures();

 private:
  void process_departure(uint64_t id);

  const uint64_t id_;
  ControlHistory& history_;
  const ControlGroupTable& groups_;
  const ControlPeerTable& processes_;
  ConnectionDemand& demand_;
  ControlGossip& gossip_;
  TickTimer& timer_;
  ControlDelegate& events_;
  ExceptionGuard& guard_;
};

}  // namespace ringdist
