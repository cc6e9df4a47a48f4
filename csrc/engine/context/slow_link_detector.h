// SlowLinkDetector: finds the host, or the link between two hosts, that data move over much more
// slowly than over the others.
//
// Only links between addresses of processes of the job count, and not those to a file server. The
// speed of a link is the bytes that its receiver has confirmed per time in which data were on their
// way. So a link that is used little is no slow one. If all slow links have a host in common, it is
// the culprit, since a slow line of a host shows on all links to it and from it.
// Like a straggler (StragglerDetector), it is named after three windows of 5 s in a row.
//
// One thread at a time; no I/O.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/op/call_sample.h"

namespace ringdist {

// See the head of this file.
class SlowLinkDetector {
 public:
  // Takes the links of a sample of `process`.
  void learn(uint64_t process, const CallSample& sample);
  // Ends a window that is over. Returns a line for the log if something is named, or no longer.
  std::vector<std::string> evaluate(TimePoint now);
  // Returns what is named as a JSON array of at most one object. Its members are those of SlowLink
  // in the Python module _snapshot.
  std::string json() const;

 private:
  using Edge = std::pair<std::string, std::string>;  // addresses, from and to
  struct Traffic {
    uint64_t bytes = 0;
    std::map<uint64_t, uint64_t> busy;  // microseconds, by process
    uint64_t resent = 0;
    uint32_t rtt = 0;  // microseconds
  };
  struct End {
    std::string host;
    std::string address;

    bool operator==(const End&) const = default;
    std::string text() const { return "host " + host + " (" + address + ")"; }
  };
  // A slow link, or without `to` a slow host. Rates are in bytes per second.
  struct SlowLink {
    End from;
    std::optional<End> to;
    double rate = 0;
    double others = 0;
    uint64_t resent = 0;
    uint32_t rtt = 0;

    bool same_place(const SlowLink& other) const { return from == other.from && to == other.to; }
    std::string describe() const;
  };
  struct Rate {
    double bytes_per_second;
    double busy;  // seconds
    const Edge* edge;
    const Traffic* traffic;
  };

  static constexpr Duration kWindow = std::chrono::seconds(5);
  static constexpr size_t kWindows = 3;

  // Returns the links of the present window that are compared, the slowest one first.
  std::vector<Rate> rates() const;
  // Returns the slow link or host of the present window.
  std::optional<SlowLink> find() const;

  // Both are of the present window.
  std::map<std::string, std::string> hosts_;  // by address
  std::map<Edge, Traffic> edges_;
  TimePoint window_began_{};
  std::deque<std::optional<SlowLink>> past_;  // results of the last windows, oldest first
  std::optional<SlowLink> named_;
};

}  // namespace ringdist
