// What serves one job at a time, and those who wait for it in turn: of all flows that have a job,
// each gets one before any gets its next. Jobs of a flow keep their order. So flows that share a
// line of a host get as much of it, however much one of them has waiting.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>

#include "base/check.h"
#include "base/clock.h"

namespace ringdist {

class FairQueue {
 public:
  struct Job {
    int id;
    Duration time;
  };

  void add(uint64_t flow, Job job) {
    auto& queue = waiting_[flow];
    queue.push_back(job);
    if (queue.size() == 1) turns_.push_back(flow);
  }

  // The job that is served from now on, or nothing: one is being served, none waits, or it is held.
  std::optional<Job> begin() {
    if (busy_ || held_ || turns_.empty()) return std::nullopt;
    const uint64_t flow = turns_.front();
    turns_.pop_front();
    const auto queue = waiting_.find(flow);
    const Job job = queue->second.front();
    queue->second.pop_front();
    if (queue->second.empty())
      waiting_.erase(queue);
    else
      turns_.push_back(flow);
    busy_ = true;
    return job;
  }
  // That job is done.
  void end() {
    check(busy_, "the end of a job that was not begun");
    busy_ = false;
  }

  // While held it begins nothing; what it serves goes on.
  void hold(bool held) { held_ = held; }

 private:
  std::unordered_map<uint64_t, std::deque<Job>> waiting_;  // by flow: none is empty
  std::deque<uint64_t> turns_;                             // the flows that wait, the next first
  bool busy_ = false;
  bool held_ = false;
};

}  // namespace ringdist
