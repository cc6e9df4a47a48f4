// Description of one simulated run of a World: the members and the faults that happen while they
// agree. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

namespace ringdist::membership {

struct Fault {
  enum class Kind : uint8_t {
    kKill,         // a process dies; messages that it sent to other hosts may be lost
    kKillSending,  // a process dies after it has sent `other` more messages
    kStop,         // a process does not run for a while, or for ever
    kCut,          // two hosts lose their connection, both ways
    kCutOneWay,    // messages from the first host do not reach the second
    kStall,        // messages from one process to another are late, also inside a host
    kDrop,         // every third message between two hosts is lost
    kLoseStore,
    kShrink,  // no fault: a member requests the next generation
    kJoin,    // no fault: a process on that host sends a join request
    kGiveUp,  // the control plane of a member reports another one lost, rightly or not
  };

  Kind kind = Kind::kKill;
  int64_t at = 0;       // ms, or the number of the event before which the fault happens
  bool counts = false;  // `at` is an event number
  int who = 0;          // number of a process or host
  int other = 0;        // number of a process or host, or of messages
  int64_t lasts = 0;    // ms, or 0 for ever

  bool operator==(const Fault&) const = default;
};

struct Scenario {
  uint64_t seed = 1;       // seed of all random decisions of the run
  std::vector<int> hosts;  // host of each member
  int store_host = 0;
  int store_process =
      -1;               // process on that host that serves the store, which ends with it; else -1
  int64_t latency = 1;  // ms, between hosts
  int64_t jitter = 0;   // ms
  bool rough = false;   // sockets are full at times, and stores are late or do not answer
  int64_t told = 60;    // upper limit in ms until other hosts detect a death
  std::vector<Fault> faults;

  bool operator==(const Scenario&) const = default;
};

// Draws a scenario with 2 to 9 members on 1 to 4 hosts and up to six faults. One scenario in five
// follows a pattern that has broken a wrong rule before, with random times.
Scenario draw(uint64_t seed);

// Draws the same scenario with additional faults in which members report others lost. Then no
// process is guaranteed to stay or to finish; all other invariants hold.
Scenario draw_giving_up(uint64_t seed);
bool gives_up(const Scenario& scenario);

// Returns all runs of three members with one or two faults. They cover each layout on hosts and
// each pair of faults, at every `stride`th event or message.
std::vector<Scenario> small_scenarios(int64_t stride);
// Returns a scenario in which one of `members` processes dies, with eight members per host.
Scenario one_death(int members, int victim);

std::string describe(const Fault& fault);
std::string describe(const Scenario& scenario);

}  // namespace ringdist::membership
