// Processes that agree on who they are, on a simulated network with a virtual clock: one run of a
// scenario, with faults, in which what must hold is checked after each thing that happens. The same
// scenario always takes the same course.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "simulate/network_model.h"
#include "support/membership/callers.h"
#include "support/membership/injector.h"
#include "support/membership/process.h"
#include "support/membership/reach.h"
#include "support/membership/rules.h"
#include "support/membership/scenario.h"
#include "support/membership/settling.h"
#include "support/membership/stores.h"

namespace ringdist::membership {

struct Outcome {
  std::string violation;  // "": none
  int64_t events = 0;
  int64_t messages = 0;
  Duration took{0};            // of virtual time
  Duration last_installed{0};  // when a process installed a generation for the last time
  Duration last_begun{0};      // when one began on a process
};

class World final : public NetworkModelDelegate {
 public:
  // Real time limits are kept in proportion: silence is a second here.
  static PaxosTimeouts usual_pace();

  explicit World(const Scenario& scenario, const PaxosTimeouts& timeouts = usual_pace(),
                 std::ostream* trace = nullptr);

  // Until all is settled, or something is wrong.
  Outcome run();

  // For its processes.
  Process& process(int index) { return *processes_[static_cast<size_t>(index)]; }
  const Process& process(int index) const { return *processes_[static_cast<size_t>(index)]; }
  void send(int from, int to, const ConsensusMessage& message);
  void read_vote(int index, const Ballot& ballot);
  void cast_vote(int index, const Ballot& ballot, const std::optional<Accepted>& before,
                 const Accepted& vote);
  bool reaches_store(int index) const;
  int store_named(const std::string& name);
  const std::string& store_name(int store) const { return stores_.name(store); }
  void on_installed(int index, uint64_t from, const Decision& decision);
  void on_begun(int index);
  void on_excluded(int index, uint64_t from, const Decision& decision);

  // For those who drive it.
  using Action = std::function<void()>;
  TimePoint now() const { return wire_.now(); }
  const PaxosTimeouts& timeouts() const { return timeouts_; }
  const Scenario& scenario() const { return scenario_; }
  const std::vector<std::unique_ptr<Process>>& processes() const { return processes_; }
  NetworkModel& wire() { return wire_; }
  Stores& stores() { return stores_; }
  const Reach& reach() const { return reach_; }
  Callers& callers() { return callers_; }
  // The kernel told the one of the other's death.
  bool was_told(int index, int dead) { return told_[index].contains(dead); }
  void at(Duration after, Action action);
  // Runs it now, or when that process wakes.
  void in_process(int index, Action action);
  void note(const std::string& what);
  Duration drawn(int64_t least_ms, int64_t most_ms);
  bool toss() { return random_() % 2 == 0; }
  int add_process(int host);
  void kill(int index);
  // What the one sends to the other comes so much later.
  void stall(int from, int to, Duration lasts);
  // The kernel tells a process, which has read all that the dead one had sent.
  void tell_death(int index, int dead);
  bool is_full();  // a socket that something is to be written to
  // Something has changed that decides who can talk to whom.
  void update_reach();

  void on_left(int) override {}
  void on_arrived(int id) override;
  void on_time(int id) override;

 private:
  struct OnItsWay {
    int from = 0;
    int to = 0;
    std::vector<std::byte> bytes;  // none: the kernel tells of the sender's death
    bool lost = false;
  };

  struct Line {
    TimePoint stalled_until;
    std::deque<OnItsWay> waiting;
  };
  bool has_read_the_dead(int index) const;
  bool gets_through(int from, int to) const;
  void move_on(int from, int to);
  bool is_unlucky(int percent);
  void ask_store(int index, std::function<Action(const Process&, bool reached)> visit);
  void put_on_wire(int from, int to, std::vector<std::byte> bytes);
  void deliver(const OnItsWay& message);
  void deliver_to_newcomer(Process& one, ProcessId from, const ConsensusMessage& message);
  void schedule_tick(Process& process);
  void handled(Process& process);
  bool is_wrong() const { return !rules_.violation().empty(); }

  const Scenario scenario_;
  const PaxosTimeouts timeouts_;
  std::ostream* const trace_;
  const NetworkCosts costs_;
  NetworkModel wire_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::map<int, OnItsWay> on_its_way_;         // by the wire's number
  std::map<std::pair<int, int>, Line> lines_;  // of processes
  std::vector<Action> actions_;                // of on_time
  Reach reach_;
  Stores stores_;
  std::map<int, std::set<int>> told_;
  Injector injector_{*this};
  Callers callers_{*this};
  Rules rules_{*this};
  Settling settling_{*this, rules_.lineages()};
  Outcome outcome_;
};

}  // namespace ringdist::membership
