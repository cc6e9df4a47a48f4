// Who wants to become a member of a group. A value.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "membership/paxos/decision.h"

namespace ringdist {

class JoinQueue {
 public:
  bool is_open() const { return open_; }
  // From now on newcomers may knock.
  void open() { open_ = true; }

  // A newcomer does so until it is let in. True: for the first time, so that it is to be looked at.
  // `reached`: by all present members, and it reaches them.
  bool request_join(const Newcomer& newcomer, bool reached, TimePoint now);
  // It has been looked at, and may come once it is reached; it is of that host.
  void accept(ProcessId process, const std::string& host);
  // A process of that host was let in and was lost before it had come. Its host waits twice as long
  // as the last time before another one is let in.
  void fail(const std::string& host, TimePoint now);
  // Who may come, and knocks still.
  std::vector<Newcomer> waiting(TimePoint now) const;
  // Somebody does, and those who began with it have had the time to knock, too.
  bool is_due(TimePoint now) const;
  // They are members; and those who knock no more are forgotten.
  void admit_members(const std::vector<ProcessId>& members, TimePoint now);

 private:
  struct PendingJoin {
    std::string entry;
    TimePoint heard_at;
    bool accepted = false;
    std::optional<TimePoint> reached_at;
    std::string host;
  };
  struct Failures {
    int count = 0;
    TimePoint until;
  };
  bool may_come(const PendingJoin& guest, TimePoint now) const;

  bool open_ = false;
  std::map<ProcessId, PendingJoin> pending_;
  std::map<std::string, Failures> failures_;  // by host
};

}  // namespace ringdist
