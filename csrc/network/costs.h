// What it costs to move a message, per kind of link: the terms of the simulated network and of the
// cost walk. Values; any thread.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace ringdist {

// A message of n bytes takes, where nobody else uses what it needs:
//   per_message + n / copied_per_second       of the sender's time
//   latency + (n + framing) / bytes_per_second on the line
//   per_message + n / copied_per_second       of the receiver's time
struct LinkCosts {
  Duration latency{0};           // from one host's line to the other's, or through memory
  double bytes_per_second = 0;   // of the line that a host's ranks share; 0: takes no time
  double copied_per_second = 0;  // bytes: each end goes over them once; 0: takes no time
  Duration per_message{0};       // at each end
  int64_t framing = 0;           // bytes on the line besides the payload
};

struct NetworkCosts {
  LinkCosts inside;   // of a host: one line, its memory
  LinkCosts between;  // hosts: a line out of each and one into it
};

// Rounded up to a nanosecond; a rate of 0 takes no time.
Duration time_of(int64_t bytes, double bytes_per_second);

// Of a sender's or a receiver's time.
Duration end_time(const LinkCosts& costs, int64_t bytes);
Duration line_time(const LinkCosts& costs, int64_t bytes);

// Round figures for a first guess: shared memory of a present host; TCP over links of that many
// bits per second.
NetworkCosts usual_costs(double bits_per_second, Duration latency);

}  // namespace ringdist
