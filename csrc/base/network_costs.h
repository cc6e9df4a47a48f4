// What it costs to move a message, per kind of link: the terms of the simulated network and of the
// cost walk. Values; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

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

  bool operator==(const LinkCosts&) const = default;
};

struct NetworkCosts {
  LinkCosts inside;   // of a host: one line, its memory
  LinkCosts between;  // hosts: a line out of each and one into it

  bool operator==(const NetworkCosts&) const = default;
};

// Rounded up to a nanosecond; a rate of 0 takes no time.
Duration time_of(int64_t bytes, double bytes_per_second);

// Of a sender's or a receiver's time.
Duration end_time(const LinkCosts& costs, int64_t bytes);
Duration line_time(const LinkCosts& costs, int64_t bytes);

// Round figures for a first guess: shared memory of a present host; TCP over links of that many
// bits per second.
NetworkCosts default_costs(double bits_per_second, Duration latency);

// What is between hosts where nobody says otherwise: nobody knows it when a group is made.
inline constexpr double kDefaultRate = 10e9;  // bits per second
inline constexpr Duration kDefaultLatency = std::chrono::microseconds(30);

// What a group plans by, and where it is from.
struct GroupCosts {
  NetworkCosts constants = default_costs(kDefaultRate, kDefaultLatency);
  std::string file;  // that its rank 0 was given; "": they are built in

  std::string describe() const;  // "the built-in costs", "the costs of '/etc/costs.json'"
};

// The constants of a link by the names that files and Python give them.
struct LinkConstant {
  std::string_view name;  // "latency_ns"
  double (*get)(const LinkCosts&);
  void (*set)(LinkCosts&, double);
};
std::span<const LinkConstant> link_constants();

// "between.latency_ns is 30000, not 50000": the first of `theirs` that is not as in `ours`; "" if
// there is none.
std::string describe_difference(const NetworkCosts& ours, const NetworkCosts& theirs);

}  // namespace ringdist
