// Who wants to become a member of a group. A value.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "consensus/decision.h"

namespace ringdist {

class Door {
 public:
  bool is_open() const { return open_; }
  // From now on newcomers may knock.
  void open() { open_ = true; }

  // A newcomer does so until it is let in. True: for the first time, so that it is to be looked at.
  bool knock(const Newcomer& newcomer, TimePoint now);
  // It has been looked at, and may come.
  void accept(ProcessId process);
  // Who may come, and knocks still.
  std::vector<Newcomer> waiting(TimePoint now) const;
  // Somebody does, and those who began with it have had the time to knock, too.
  bool is_due(TimePoint now) const;
  // They are members; and those who knock no more are forgotten.
  void let_in(const std::vector<ProcessId>& members, TimePoint now);

 private:
  struct Guest {
    std::string entry;
    TimePoint came_at;
    TimePoint heard_at;
    bool accepted = false;
  };

  bool open_ = false;
  std::map<ProcessId, Guest> guests_;
};

}  // namespace ringdist
