// StragglerDetector: finds the rank of a group that the others wait for again and again, and why it
// is late. It compares the call times of the same ops on all ranks, on the clock of this process.
//
// It counts how often a rank is late, not for how long. In balanced training one pause can be
// most of the time that ranks have waited, while a straggler is late in many ops. A rank is named
// after it was late conspicuously often in three windows of 5 s, one after another.
//
// One thread at a time; no I/O.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/op/call_sample.h"

namespace ringdist {

// Why a rank is late, in the order in which causes are tried.
enum class LateCause : uint8_t {
  kUnknown,
  kStopped,      // the process stood still
  kElsewhere,    // it was in ops of another group
  kFaults,       // pages were read from a disk
  kDescheduled,  // its threads waited for a core
  kIdle,         // its threads did not want to run
  kComputes,
};

// See the head of this file.
class StragglerDetector {
 public:
  // Takes a sample of `process` that was requested at `asked` and has come at `received`, both by
  // the clock of this process.
  void learn(uint64_t process, const CallSample& sample, TimePoint asked, TimePoint received);
  // Ends windows that are over. Returns a line for the log for each rank that is named, or no
  // longer.
  std::vector<std::string> evaluate(TimePoint now);
  // Returns the ranks that are named, as a JSON array of objects with group (id), rank, share,
  // late (seconds), cause and text.
  std::string json() const;

 private:
  // The clock of another process: its time minus the time here is in [low, high].
  struct RemoteClock {
    Duration low{};
    Duration high{};
    TimePoint measured{};
    Duration paused{};  // CallSample::paused of the last sample
  };
  struct Call {
    TimePoint began;  // by the clock of this process
    Duration error{};
    SampledCall what;
  };
  using OpCalls = std::map<int, Call>;  // calls of one op, by rank
  // Usage of a rank before calls, summed.
  struct UsageSum {
    double calls = 0;    // only with a usage
    double elapsed = 0;  // microseconds, like the next three
    double cpu = 0;
    double run_delay = 0;
    double elsewhere = 0;
    double faults = 0;

    void add(const UsageSum& more);
  };
  // Behaviour of a rank in a window.
  struct RankWindow {
    int late = 0;  // calls
    Duration lateness{};
    Duration measured_lateness{};  // only calls with a usage
    Duration paused{};             // in the whole window
    UsageSum before_late;
    UsageSum before_in_time;
    uint64_t other_group = 0;  // the one that it was in before a late call

    void add(const RankWindow& more);
  };
  struct Window {
    TimePoint began;
    int ops = 0;           // judged ops
    uint64_t numbers = 0;  // all ops, with those that were not sampled
    std::vector<RankWindow> ranks;
  };
  // A rank that is named.
  struct Straggler {
    int rank;
    double share;     // part of the ops in which it was late
    double lateness;  // seconds, the mean of these ops
    LateCause cause;
    uint64_t other_group;
  };
  struct WatchedGroup {
    std::string name;
    std::vector<std::string> places;   // by rank
    std::map<uint64_t, OpCalls> open;  // ops that not all ranks have reported, by number
    uint64_t last = 0;                 // highest number that was judged
    TimePoint last_at{};
    double interval = 0;  // seconds between ops, a moving mean
    Window window;
    std::deque<Window> past;  // the last ones, oldest first
    std::optional<Straggler> named;
    TimePoint heard{};
  };

  static constexpr Duration kWindow = std::chrono::seconds(5);
  static constexpr size_t kWindows = 3;

  RemoteClock& compare_clocks(uint64_t process, TimePoint there, TimePoint asked,
                              TimePoint received);
  // Finds the late ranks of an op that all ranks have called.
  static void judge(WatchedGroup& group, uint64_t number, const OpCalls& calls);
  // Returns the behaviour in one call, which was late unless `late` is 0.
  static RankWindow behaviour(const SampledCall& call, Duration late);
  // Returns the rank that the last windows show as a straggler.
  static std::optional<Straggler> straggler_of(const WatchedGroup& group);
  static bool conspicuous(const Window& window, size_t rank);
  static LateCause cause_of(const RankWindow& rank);
  std::string describe(const WatchedGroup& group, const Straggler& one) const;

  std::map<uint64_t, RemoteClock> clocks_;   // by process
  std::map<uint64_t, WatchedGroup> groups_;  // by id
};

}  // namespace ringdist
