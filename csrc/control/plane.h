// The control plane of a process: who is connected, who is in which group, who is gone, what goes
// around. One thread's: the control thread, which tells it of events, of commands and of time.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "control/answers.h"
#include "control/arrivals.h"
#include "control/dialer.h"
#include "control/events.h"
#include "control/goodbye.h"
#include "control/gossip.h"
#include "control/groups.h"
#include "control/judge.h"
#include "control/ledger.h"
#include "control/processes.h"
#include "control/requests.h"
#include "control/sockets.h"
#include "os/epoll.h"

namespace ringdist {

class ControlPlane final : private ControlSockets::Owner,
                           private ControlJudge::Court,
                           private ControlRequests::Host {
 public:
  // Connections and ends of processes are events of `epoll`, which outlives it, as `events` and
  // `guard` do.
  ControlPlane(uint64_t id, const Config& config, ControlEvents& events, const Epoll& epoll,
               ControlGuard& guard);

  Error listen(const std::string& local_ip);
  uint64_t id() const { return id_; }
  const std::string& unix_name() const { return sockets_.unix_name(); }
  const std::string& tcp_address() const { return sockets_.tcp_address(); }

  // A turn: its beginning, then events and commands, then the rest. Of these only commands throw,
  // and prove() and connect() answer instead.
  Duration next_sleep() const;
  void begin_turn(TimePoint now);
  void on_event(const Epoll::Event& event);
  void end_turn();

  void prove(const ControlRequest& request, const std::string& unix_name);
  void connect(const ControlRequest& request, int rank, const std::vector<ControlMember>& members);
  void disconnect(uint64_t nonce, int rank);
  void flood(const std::vector<std::byte>& payload);
  // `answer`: once goodbye is said.
  void leave(bool process_ends, std::shared_ptr<std::promise<Error>> answer);
  // The thread ends: whoever waits gets an answer.
  void end();
  // What this process and its control plane do, in lines.
  std::string report();

 private:
  // ControlSockets::Owner
  ControlSockets::Admission admit(const ControlConnection& connection, const Hello& hello) override;
  void on_reached(ControlConnection& connection) override;
  void on_open(ControlConnection& connection) override;
  void on_frame(ControlConnection& connection, const Frame& frame) override;
  void on_closed(const ControlConnection& connection, bool was_reached, int errno_value,
                 const std::string& reason) override;

  // ControlJudge::Court
  void learn_lost(uint64_t id, const std::string& cause) override {
    learn_lost(id, cause, nullptr);
  }
  void learn_left(uint64_t id) override { learn_left(id, nullptr); }
  std::string name_of(uint64_t id) const override;  // and ControlRequests::Host

  void on_linked(uint64_t nonce) override { gossip_.learn_formed(nonce, {id_}, nullptr); }

  void on_dump_request(ControlConnection& connection);
  void on_exits(ControlConnection& connection);
  void on_exit(uint64_t id);
  void learn_lost(uint64_t id, const std::string& cause, const ControlConnection* from);
  void learn_left(uint64_t id, const ControlConnection* from);
  void tell_owner();
  void forget_old_fates();
  void drop(uint64_t id);  // and its connections

  void tick();
  void upkeep();
  void keep_groups();
  void forget_left();
  void settle_needs();
  void say_goodbye();
  void say_words();
  bool unsettled() const;
  void hurry() { next_tick_ = TimePoint(); }

  const uint64_t id_;
  ControlEvents& events_;
  ControlGuard& guard_;
  ControlSockets sockets_;
  ControlLedger ledger_;
  ControlProcesses processes_;
  ControlGroups groups_;
  ControlArrivals arrivals_;
  ControlGossip gossip_;
  ControlDialer dialer_;
  ControlJudge judge_;
  ControlAnswers answers_;
  ControlGoodbye goodbye_;
  ControlRequests requests_;
  TimePoint now_ = Clock::now();  // of this turn
  TimePoint next_tick_{};
};

}  // namespace ringdist
