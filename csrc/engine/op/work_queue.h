// The steps that can go on, of all Runs of a lane, in the order in which they were found out.
//
// Every call comes with the lane's driver token held.
#pragma once

#include <cstddef>
#include <deque>

namespace ringdist {

class Run;

struct WorkItem {
  Run* run;
  int step;
};

class WorkQueue {
 public:
  void push(Run& run, int step) { items_.push_back({&run, step}); }
  bool empty() const { return items_.empty(); }
  WorkItem pop() {
    const WorkItem out = items_.front();
    items_.pop_front();
    return out;
  }
  // The Run ends.
  void forget(const Run& run) {
    std::erase_if(items_, [&run](const WorkItem& item) { return item.run == &run; });
  }

 private:
  std::deque<WorkItem> items_;
};

}  // namespace ringdist
