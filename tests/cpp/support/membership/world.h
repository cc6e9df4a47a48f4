// Simulated processes that agree on their membership over a simulated network with a virtual
// clock. One World runs one scenario with faults, and checks the invariants (rules.h) after each
// event. The same scenario always gives the same run. Single-threaded.
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
  Duration took{0};            // virtual time of the run
  Duration last_installed{0};  // time of the last installation of a generation
  Duration last_begun{0};      // time at which a generation last began on a process
};

class World final : public NetworkModelDelegate {
 public:
  // Returns the default timeouts. They keep the proportions of the real ones, with one second of
  // silence until a process counts as lost.
  static PaxosTimeouts usual_pace();

  explicit World(const Scenario& scenario, const PaxosTimeouts& timeouts = usual_pace(),
                 std::ostream* trace = nullptr);

  // Runs until all processes have settled, or until an invariant is violated.
  Outcome run();

  // The following functions are for the processes.
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

  // The following functions are for Injector, Callers, Rules and Settling.
  using Action = std::function<void()>;
  TimePoint now() const { return wire_.now(); }
  const PaxosTimeouts& timeouts() const { return timeouts_; }
  const Scenario& scenario() const { return scenario_; }
  const std::vector<std::unique_ptr<Process>>& processes() const { return processes_; }
  NetworkModel& wire() { return wire_; }
  Stores& stores() { return stores_; }
  const Reach& reach() const { return reach_; }
  Callers& callers() { return callers_; }
  // True if the kernel has reported the death of `dead` to process `index`.
  bool was_told(int index, int dead) { return told_[index].contains(dead); }
  void at(Duration after, Action action);
  // Runs the action at once, or when the process wakes if it is stopped.
  void in_process(int index, Action action);
  void note(const std::string& what);
  Duration drawn(int64_t least_ms, int64_t most_ms);
  bool toss() { return random_() % 2 == 0; }
  int add_process(int host);
  void kill(int index);
  // Delays messages from one process to the other by `lasts`.
  void stall(int from, int to, Duration lasts);
  // The kernel reports the death of `dead` to a process that has read all its messages.
  void tell_death(int index, int dead);
  bool is_full();  // true, at random, if the socket to be written to is full
  // Recomputes the pairs of processes that can communicate, after an event that affects them.
  void update_reach();

  void on_left(int) override {}
  void on_arrived(int id) override;
  void on_time(int id) override;

 private:
  struct OnItsWay {
    int from = 0;
    int to = 0;
    std::vector<std::byte> bytes;  // empty: the kernel reports the death of the sender
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
  std::map<int, OnItsWay> on_its_way_;         // by message number of the network model
  std::map<std::pair<int, int>, Line> lines_;  // by sender and receiver
  std::vector<Action> actions_;                // actions of on_time()
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
