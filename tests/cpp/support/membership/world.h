// Processes that agree on who they are, on a simulated network with a virtual clock: one run of a
// scenario, with faults, in which what must hold is checked after each thing that happens. The same
// scenario always takes the same course.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "network/wire.h"
#include "support/membership/lineages.h"
#include "support/membership/process.h"
#include "support/membership/reach.h"
#include "support/membership/scenario.h"
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

class World final : public WireEvents {
 public:
  // Real time limits are kept in proportion: silence is a second here.
  static Pace usual_pace();

  explicit World(const Scenario& scenario, const Pace& pace = usual_pace(),
                 std::ostream* trace = nullptr);

  // Until all is settled, or something is wrong.
  Outcome run();

  // For its processes.
  Process& process(int index) { return *processes_[static_cast<size_t>(index)]; }
  void kill(int index);
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

  void on_left(int) override {}
  void on_arrived(int id) override;
  void on_time(int id) override;

 private:
  using Action = std::function<void()>;
  struct OnItsWay {
    int from = 0;
    int to = 0;
    std::vector<std::byte> bytes;  // none: the kernel tells of the sender's death
    bool lost = false;
  };

  int add_process(int host);
  void put_on_wire(int from, int to, std::vector<std::byte> bytes);
  void deliver(const OnItsWay& message);
  void deliver_to_newcomer(Process& one, ProcessId from, const ConsensusMessage& message);
  // Runs it now, or when that process wakes.
  void in_process(int index, Action action);
  void at(Duration after, Action action);
  void schedule_tick(Process& process);
  void handled(Process& process);

  void plan(const Fault& fault);
  void apply(const Fault& fault);
  void stop(int index, Duration lasts);
  void resume(int index);
  void cut(int from_host, int to_host, bool both, Duration lasts);
  void join(int host);
  void shrink(int index);
  // Its caller hears of a loss in the generation that it is in, and reacts within so many ms.
  void shrink_within(int index, int64_t most_ms);
  // As the control plane would: who has been out of reach for too long is suspected.
  void detect(int index);
  void detect_later();
  void update_reach();
  bool is_cut(int from_host, int to_host) const { return cuts_.contains({from_host, to_host}); }

  void check_composed(int index, const Decision& decision);
  void check_line(int index);
  void fail(const std::string& what);
  // "": every process that can go on has, and nobody else.
  bool is_parted_cleanly() const;
  std::string unsettled();
  std::string unsettled(const std::vector<int>& together);
  bool knows_who_went_on(Process& one, const std::vector<int>& together);
  bool has_quorum(const std::vector<int>& together, const Process& newest);
  void note(const std::string& what);
  Duration now() const { return wire_.now() - Wire::kStart; }
  Duration drawn(int64_t least_ms, int64_t most_ms);

  const Scenario scenario_;
  const Pace pace_;
  std::ostream* const trace_;
  const NetworkCosts costs_;
  Wire wire_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::map<int, OnItsWay> on_its_way_;       // by the wire's number
  std::vector<Action> actions_;              // of on_time
  std::vector<Fault> counted_;               // faults that wait for an event, the last first
  std::map<std::pair<int, int>, int> cuts_;  // of hosts, how many hold
  Reach reach_;
  Stores stores_;
  Lineages lineages_;
  std::map<int, std::set<int>> told_;  // of whose deaths the kernel told a process
  Outcome outcome_;
  TimePoint last_fault_;
};

}  // namespace ringdist::membership
