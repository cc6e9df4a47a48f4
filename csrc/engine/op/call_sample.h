// Sample of the latest calls of a process: when each op was called, and what the caller did before.
// One process of a job collects the samples of all (see StragglerDetector and SlowLinkDetector).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/buffers.h"
#include "base/clock.h"
#include "os/tcp_links.h"
#include "os/thread_usage.h"

namespace ringdist {

// A collective that was called.
struct SampledCall {
  uint64_t number = 0;  // Op::number
  TimePoint began;      // by the clock of its process
  ThreadUsage usage;    // usage of the caller before the call
  // The time of usage.elapsed in which the process had ops of other groups in flight, in
  // microseconds, and the id of the group with the largest part.
  uint32_t elsewhere = 0;
  uint64_t other_group = 0;
};

// Calls of one rank in one group.
struct GroupCalls {
  uint64_t id = 0;
  std::string name;
  int32_t size = 0;
  int32_t rank = 0;
  std::vector<SampledCall> calls;
};

// Calls of a process, and what its connections have sent.
struct CallSample {
  static constexpr size_t kMostGroups = 8;
  static constexpr size_t kMostCalls = 128;  // calls of one group
  static constexpr size_t kMostLinks = 64;

  std::string host;
  std::string place;  // the process, for a human: "pid 71 on host a"
  TimePoint now;      // when the sample was taken
  Duration paused{};  // how long the process has stood still so far, as far as that was noticed
  std::vector<GroupCalls> groups;
  std::vector<LinkProgress> links;  // since the last sample

  std::string encode() const;
  // Returns nothing for malformed bytes.
  static std::optional<CallSample> decode(ConstBytes bytes);
};

}  // namespace ringdist
