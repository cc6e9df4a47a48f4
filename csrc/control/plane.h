// The control plane of a process: who is connected, who is in which group, who is gone, what goes
// around. One thread's: the control thread, which tells it of events, of commands and of time.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/patience.h"
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
#include "control/sockets.h"
#include "os/epoll.h"

namespace ringdist {

class ControlPlane final : private ControlSockets::Owner, private ControlJudge::Court {
 public:
  // For whom another thread waits. It is answered once, whatever happens.
  struct Request {
    bool is_proof = false;
    uint64_t id = 0;                     // of the process or the group
    const Patience* patience = nullptr;  // its caller's, who waits
    std::shared_ptr<std::promise<Error>> answer;
  };

  // What those hear who ask too late.
  static Error stopped();

  // Connections and ends of processes are events of `epoll`, which outlives it, as `events` does.
  ControlPlane(uint64_t id, const Config& config, ControlEvents& events, const Epoll& epoll);

  Error listen(const std::string& local_ip);
  uint64_t id() const { return id_; }
  const std::string& unix_name() const { return sockets_.unix_name(); }
  const std::string& tcp_address() const { return sockets_.tcp_address(); }

  // A turn: its beginning, then events and commands, then the rest.
  Duration next_sleep() const;
  void begin_turn(TimePoint now);
  void on_event(const Epoll::Event& event);
  // What was thrown while it handled that event was caught.
  void give_up(const Epoll::Event& event) { sockets_.give_up(event.key); }
  void end_turn();

  void prove(const Request& request, const std::string& unix_name);
  void connect(const Request& request, int rank, const std::vector<ControlMember>& members);
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
  std::string name_of(uint64_t id) const override;

  void accept(const Request& request);
  void refuse_requests();
  void settle_requests();
  std::optional<Error> answer_to(const Request& request);
  std::optional<Error> group_answer(const Request& request);

  void on_dump_request(ControlConnection& connection);
  void on_exits(ControlConnection& connection);
  void on_exit(uint64_t id);
  void learn_lost(uint64_t id, const std::string& cause, const ControlConnection* from);
  void learn_left(uint64_t id, const ControlConnection* from);
  void forget_old_fates();
  void drop(uint64_t id);  // and its connections

  void upkeep();
  void forget_left();
  void settle_needs();
  void say_goodbye();
  bool unsettled() const;
  void hurry() { next_tick_ = TimePoint(); }

  const uint64_t id_;
  ControlEvents& events_;
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
  std::vector<Request> requests_;
  TimePoint now_ = Clock::now();  // of this turn
  TimePoint next_tick_{};
};

}  // namespace ringdist
