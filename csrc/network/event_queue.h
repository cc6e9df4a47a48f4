// What is to happen, by time; of the same time, in the order in which it was added. So a run
// depends on nothing but what is added.
#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

#include "base/clock.h"

namespace ringdist {

template <typename What>
class EventQueue {
 public:
  struct Event {
    TimePoint at;
    uint64_t sequence;
    What what;
  };

  void add(TimePoint at, What what) { events_.push({at, sequence_++, what}); }
  bool empty() const { return events_.empty(); }
  std::optional<TimePoint> next() const {
    return empty() ? std::nullopt : std::optional(events_.top().at);
  }
  Event pop() {
    const Event out = events_.top();
    events_.pop();
    return out;
  }

 private:
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.at != b.at ? a.at > b.at : a.sequence > b.sequence;
    }
  };

  std::priority_queue<Event, std::vector<Event>, Later> events_;
  uint64_t sequence_ = 0;
};

}  // namespace ringdist
