// The steps that can go on, of all OpExecutions of a lane, in the order in which they were found
// out.
//
// Every call comes with the lane's driver token held.
#pragma once

#include <cstddef>
#include <vector>

namespace ringdist {

class OpExecution;

struct WorkItem {
  OpExecution* run;
  int step;
};

class WorkQueue {
 public:
  void push(OpExecution& run, int step) { items_.push_back({&run, step}); }
  bool empty() const { return next_ == items_.size(); }
  WorkItem pop() {
    const WorkItem out = items_[next_++];
    if (empty() || next_ == kMostPopped) drop_popped();
    return out;
  }
  // The OpExecution ends.
  void forget(const OpExecution& run) {
    drop_popped();
    std::erase_if(items_, [&run](const WorkItem& item) { return item.run == &run; });
  }

 private:
  static constexpr size_t kMostPopped = 1024;

  void drop_popped() {
    items_.erase(items_.begin(), items_.begin() + static_cast<ptrdiff_t>(next_));
    next_ = 0;
  }

  std::vector<WorkItem> items_;  // its memory stays
  size_t next_ = 0;              // those before have been taken
};

}  // namespace ringdist
