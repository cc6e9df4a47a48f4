// A group whose ranks are Dispatchers over a simulated network: no threads, no Contexts, no control
// plane, and a virtual clock, so that one thread runs hundreds of them, alike every time.
//
// An op's work on a rank takes no virtual time but that of its messages (base/network_costs.h).
// What ranks tell each other beside the data - notices, deaths - takes none at all.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/progress/dispatcher.h"
#include "plan/planner.h"
#include "transport/sim/sim_transport.h"

namespace ringdist {

struct SimRanksOptions {
  std::vector<int> hosts;  // of each rank
  SimOptions network;
  std::string algorithm;  // "": the planner's choice
  int64_t segment_bytes = 252 * 1024;
  int64_t early_segments = EagerCredit::kSegments;  // of each pair's credit
  int64_t memory = int64_t{64} << 20;               // of promises, each rank
  Duration timeout = std::chrono::minutes(5);       // of ops, in virtual time
};

// The hosts of `size` ranks, so many to each, one after another.
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

  // All ranks call this now.
  void call(const std::function<OpRequest(int rank)>& request);
  // Until all ops have ended on all ranks that run, or so much virtual time has passed.
  void run(Duration most = std::chrono::hours(1));
  struct Outcome {
    bool ended = false;
    Error error;
    Duration time{0};  // since the call
  };
  // Of the last call.
  const Outcome& outcome(int rank) const;
  // call() and run(): the time until the last rank had ended. Fails the test on any error.
  Duration time_of(const std::function<OpRequest(int rank)>& request);

  // A process ends; the others are told after `until_told`, as by the control plane.
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
  std::deque<std::pair<int, Notice>> notices_;  // with who says so
  std::vector<Death> deaths_;                   // that are to be told
  TimePoint called_;
  TimePoint next_tick_;
  uint64_t calls_ = 0;
};

}  // namespace ringdist
