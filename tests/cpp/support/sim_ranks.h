// A group of ranks that are Dispatchers over a simulated network. It uses no threads, no Contexts,
// no control plane and a virtual clock. So one thread can run hundreds of ranks, and every run is
// the same.
//
// On a rank, only the messages of an op take virtual time (base/network_costs.h). Notices and
// reports of deaths take none.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/progress/dispatcher.h"
#include "plan/planner.h"
#include "support/sim/sim_transport.h"

namespace ringdist {

struct SimRanksOptions {
  std::vector<int> hosts;  // host of each rank
  SimOptions network;
  std::string algorithm;  // "": chosen by the planner
  int64_t segment_bytes = 252 * 1024;
  int64_t early_segments = EagerCredit::kSegments;  // eager credit of each pair, in segments
  int64_t memory = int64_t{64} << 20;               // bytes for grants, per rank
  Duration timeout = std::chrono::minutes(5);       // timeout of ops, in virtual time
};

// Returns the hosts of `size` ranks, with `per_host` consecutive ranks on each.
std::vector<int> hosts_of(int size, int per_host);

class SimRanks {
 public:
  explicit SimRanks(SimRanksOptions options);
  ~SimRanks();
  SimRanks(const SimRanks&) = delete;
  SimRanks& operator=(const SimRanks&) = delete;

  int size() const { return static_cast<int>(ranks_.size()); }
  SimNetwork& network() { return *network_; }
  const Statistics& statistics(int rank) const;

  // Submits one op on every rank at the current virtual time.
  void call(const std::function<OpRequest(int rank)>& request);
  // Runs until all ops have ended on all ranks that are alive, or until `most` of virtual time has
  // passed.
  void run(Duration most = std::chrono::hours(1));
  struct Outcome {
    bool ended = false;
    Error error;
    Duration time{0};  // since call()
  };
  // Returns the rank's result of the last call.
  const Outcome& outcome(int rank) const;
  // Does call() and run(). Returns the time until the last rank has ended, and fails the test on
  // any error.
  Duration time_of(const std::function<OpRequest(int rank)>& request);

  // Ends a process. The other ranks get the report of the control plane after `until_told`.
  void kill(int rank, Duration until_told = Milliseconds(5));
  std::string dump(int rank) const;

 private:
  struct Rank;
  struct Death {
    int rank;
    TimePoint told;
  };

  static ContextId context(int rank) { return static_cast<ContextId>(rank) + 1; }
  bool runs(const Rank& rank) const;
  void turn(Rank& rank);
  void tick();
  void tell_of_deaths();
  void pass_notices();
  bool all_ended() const;

  const SimRanksOptions options_;
  const std::shared_ptr<SimNetwork> network_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::deque<std::pair<int, Notice>> notices_;  // with the rank that sends it
  std::vector<Death> deaths_;                   // deaths that are not reported yet
  TimePoint called_;
  TimePoint next_tick_;
  uint64_t calls_ = 0;
};

}  // namespace ringdist
