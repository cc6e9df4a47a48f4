// Reports on a group for people: the text of a dump, warnings about slow ops, and errors of ops
// that time out. It only reads the state of the group.
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/group/collectives.h"
#include "engine/group/desync_detector.h"
#include "engine/group/peer_table.h"
#include "engine/group/point_to_point.h"
#include "engine/group/service_channel.h"
#include "engine/op/execution_delegate.h"
#include "engine/op/op.h"
#include "engine/op/op_execution.h"

namespace ringdist {

// Status of a group: one line on what it does or waits for. A dump begins with the most severe
// status of all groups.
struct GroupStatus {
  // In order of severity. With kIsAwaited, other ranks wait for this one.
  enum Rank : uint8_t { kIdle, kRuns, kFailed, kIsAwaited, kWaits };
  Rank rank = kIdle;
  Duration age{0};  // age of the op or wait that `text` describes
  std::string text;
  // If it is about an op: its number, its call, and the ranks that it waits for. With kIsAwaited,
  // these are ranks that wait in it.
  uint64_t number = 0;
  std::string call = {};
  std::vector<int> ranks = {};

  // Returns true if this status has the higher rank, or the same rank and is older.
  bool more_severe_than(const GroupStatus& other) const {
    return rank != other.rank ? rank > other.rank : age > other.age;
  }
};

// Returns the time since the last progress of an op, or since its call. `run` is null if it has not
// started or is executed on a device.
Duration age(const Op& op, const OpExecution* run, TimePoint now);

// Describes what an op waits for, and lists the ranks that the description names.
struct Awaited {
  std::string text;
  std::vector<int> ranks = {};
};

// Returns the status of an op. If it has not progressed for a second, it includes the result of
// `awaited()`.
GroupStatus status_of(const Op& op, const OpExecution* run, TimePoint now,
                      const std::function<Awaited()>& awaited);

// Returns the beginning of a timeout error, such as "Timed out waiting 1000 ms for op #7 on rank
// 1".
std::string timed_out(const Op& op, int rank, TimePoint now);

// Logs a warning about slow ops. Only the first one is described; all that are late at the same
// time count as warned about and are not reported again.
class SlowOpWarning {
 public:
  // An op is late if it has not progressed for `after`; 0 disables the warning.
  SlowOpWarning(Duration after, TimePoint now) : after_(after), now_(now) {}
  // Checks an op and marks it as warned about if it is late. `text` makes its description.
  void look_at(Op& op, const OpExecution* run, const std::function<std::string()>& text);
  // Logs the warning if an op was late.
  void log_for(int rank, const std::string& group) const;

 private:
  const Duration after_;
  const TimePoint now_;
  std::string text_;
};

// Explains what the ops of a group wait for, from the announcements of other ranks
// (DesyncDetector). The arguments of the constructor must outlive it.
class WaitDiagnostics {
 public:
  WaitDiagnostics(const PeerTable& peers, const DesyncDetector& roll_call)
      : peers_(peers), desync_(roll_call) {}

  // Returns the status of an op; `run` as in age().
  GroupStatus status(const Op& op, const OpExecution* run, TimePoint now) const;
  // Makes the error of an op that has passed its deadline. It blames the ranks that have not called
  // the op.
  Error timed_out(const Op& op, TimePoint now) const;
  // If other ranks have announced an op after `last`, the last call of this rank, returns
  // kIsAwaited and the description; else kIdle.
  GroupStatus awaited_here(uint64_t last) const;

 private:
  // Returns what the op waits for: ranks that have not called it, or data.
  Awaited awaited(const Op& op, const OpExecution* run) const;
  Awaited awaited_data(const OpExecution& run) const;

  const PeerTable& peers_;
  const DesyncDetector& desync_;
};

// Makes the status, dump and warnings of one group from its parts, which must outlive it.
class GroupReport {
 public:
  // `name` is the group's name; `cost_source` as in GroupDescriptor.
  GroupReport(std::string name, const std::string& cost_source, const ExecutionDelegate& delegate,
              const PeerTable& peers, const WaitDiagnostics& waits, const Collectives& collectives,
              const PointToPoint& point_to_point, const ServiceChannel& service_channel);

  // Returns the most severe status of the group's ops. `failure` is the group's failure or success.
  GroupStatus status(const Error& failure) const;
  // Returns several lines with the status, all ops, and flow control by peer.
  std::string dump(const Error& failure) const;
  // Returns the number of the last collective that was called.
  uint64_t last_called() const { return collectives_.last_called(); }
  // Logs a warning if an op has waited for longer than `after`, once for each op; 0 disables it.
  void warn_of_waits(Duration after) const;

 private:
  // Calls `each` with the ops that are worth reporting, and their executions.
  template <typename Each>
  void for_each_watched(const Each& each) const;

  const std::string name_;
  const std::string cost_source_;
  const ExecutionDelegate& delegate_;
  const PeerTable& peers_;
  const WaitDiagnostics& waits_;
  const Collectives& collectives_;
  const PointToPoint& point_to_point_;
  const ServiceChannel& service_channel_;
};

}  // namespace ringdist
