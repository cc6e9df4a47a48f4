// What is done to a group while its members agree: who they are, which faults come when. Values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

namespace ringdist::membership {

struct Fault {
  enum class Kind : uint8_t {
    kKill,         // a process; what it sent to other hosts may be lost
    kKillSending,  // a process, when it has sent so many more messages
    kStop,         // a process, for a while or for ever
    kCut,          // two hosts, both ways
    kCutOneWay,    // what goes from the first host to the second
    kStall,        // what goes from one process to another comes later, also inside a host
    kDrop,         // each third message between two hosts is lost
    kLoseStore,
    kShrink,  // no fault: a member asks for the next generation
    kJoin,    // nor this: a process on that host asks to be a member
    kGiveUp,  // a member's control plane gives up another one, with or without reason
  };

  Kind kind = Kind::kKill;
  int64_t at = 0;       // ms; or the number of the event before which it happens
  bool counts = false;  // `at` is such a number
  int who = 0;          // process or host
  int other = 0;        // process or host, or messages
  int64_t lasts = 0;    // ms; 0: for ever

  bool operator==(const Fault&) const = default;
};

struct Scenario {
  uint64_t seed = 1;       // of all that is drawn while it runs
  std::vector<int> hosts;  // of each member
  int store_host = 0;
  int store_process = -1;  // of that host, that serves the store, and ends it; -1: another one
  int64_t latency = 1;     // ms, between hosts
  int64_t jitter = 0;      // ms
  bool rough = false;      // sockets are full now and then, stores are late or do not answer
  int64_t told = 60;       // ms, at most, until other hosts hear of a death
  std::vector<Fault> faults;

  bool operator==(const Scenario&) const = default;
};

// 2 to 9 members on 1 to 4 hosts, and up to six faults; of five runs one is what a wrong rule has
// been seen to fail by, with times of its own.
Scenario draw(uint64_t seed);

// The same, and members give up others: then none need stay, nor finish, and all else holds.
Scenario draw_giving_up(uint64_t seed);
bool gives_up(const Scenario& scenario);

// All runs of three members with two faults: of each layout on hosts, each two faults, at every
// `stride`th event or message.
std::vector<Scenario> small_scenarios(int64_t stride);
// One of so many members dies, eight to a host.
Scenario one_death(int members, int victim);

std::string describe(const Fault& fault);
std::string describe(const Scenario& scenario);

}  // namespace ringdist::membership
