// Cost model of message transfers, per kind of link. The simulated network and the simulation of
// schedules use it. Plain values; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace ringdist {

// Costs of one link. On idle resources, a message of n bytes takes:
//   per_message + n / copied_per_second             of the sender's time
//   latency + (n + framing) / bytes_per_second      on the line
//   per_message + n / copied_per_second             of the receiver's time
struct LinkCosts {
  Duration latency{0};           // from one host's line to the other's, or through memory
  double bytes_per_second = 0;   // rate of the line that the ranks of a host share; 0 takes no time
  double copied_per_second = 0;  // each end touches every byte once, at this rate; 0 takes no time
  Duration per_message{0};       // at each end
  int64_t framing = 0;           // bytes on the line in addition to the payload

  bool operator==(const LinkCosts&) const = default;
};

// Costs of both kinds of link.
struct NetworkCosts {
  LinkCosts inside;   // intra-host; the host's memory is one line
  LinkCosts between;  // inter-host; each host has one line out and one line in

  bool operator==(const NetworkCosts&) const = default;
};

// Returns the time that `bytes` take at a rate, rounded up to a nanosecond. A rate of 0 takes no
// time.
Duration time_of(int64_t bytes, double bytes_per_second);

// Return the time that a message of `bytes` takes at one end (sender or receiver), and on the line
// without latency.
Duration end_time(const LinkCosts& costs, int64_t bytes);
Duration line_time(const LinkCosts& costs, int64_t bytes);

// Returns round figures for a first guess: shared memory of a contemporary host, and TCP over links
// of `bits_per_second` between hosts.
NetworkCosts default_costs(double bits_per_second, Duration latency);

// Rate and latency that are assumed between hosts without a file of costs. A new group has not
// measured them.
inline constexpr double kDefaultRate = 10e9;  // bits per second
inline constexpr Duration kDefaultLatency = std::chrono::microseconds(30);

// Constants that a group plans by, and their origin. All ranks of the group use the same.
struct GroupCosts {
  NetworkCosts constants = default_costs(kDefaultRate, kDefaultLatency);
  std::string file;  // the file that rank 0 was given; "" means the built-in ones

  std::string describe() const;  // "the built-in costs" or "the costs of '/etc/costs.json'"
};

// One constant of a link, with the name that files and Python use for it. Times are in nanoseconds.
// set() rounds times and byte counts to whole numbers.
struct LinkConstant {
  std::string_view name;  // "latency_ns"
  double (*get)(const LinkCosts&);
  void (*set)(LinkCosts&, double);
};
// Returns all constants of LinkCosts. The table is static.
std::span<const LinkConstant> link_constants();

// Returns the first constant in `theirs` that differs from `ours`, as "between.latency_ns is 30000,
// not 50000". Returns "" if there is none.
std::string describe_difference(const NetworkCosts& ours, const NetworkCosts& theirs);

}  // namespace ringdist
