// What a group does, in words: for `dump`, and for the log when something takes long. It only asks.
//
// Every call comes with the lane's driver token held.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

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

// What the ops of a group wait for, in words: for `dump`, for a warning when it takes long, for the
// error when it takes too long.

// What a group does, for a human: the line that `dump` begins with is that of the highest rank.
struct GroupStatus {
  enum Rank : uint8_t { kIdle, kRuns, kFailed, kIsAwaited, kWaits };
  Rank rank = kIdle;
  Duration age{0};  // of what runs or waits
  std::string text;

  bool more_severe_than(const GroupStatus& other) const {
    return rank != other.rank ? rank > other.rank : age > other.age;
  }
};

// Since when nothing of an op has moved. `run`: null if it has not begun, and of an op on a device.
Duration age(const Op& op, const OpExecution* run, TimePoint now);

// What it does; once it has stood still for a second, that it waits for `awaited()`.
GroupStatus status_of(const Op& op, const OpExecution* run, TimePoint now,
                      const std::function<std::string()>& awaited);

// "Timed out waiting 1000 ms for op #7 on rank 1"
std::string timed_out(const Op& op, int rank, TimePoint now);

// Warns of the first of the ops that have got late; those that are late with it are not named
// later.
class SlowOpWarning {
 public:
  // Late is `after` that time; 0: never.
  SlowOpWarning(Duration after, TimePoint now) : after_(after), now_(now) {}
  void look_at(Op& op, const OpExecution* run, const std::function<std::string()>& text);
  void log_for(int rank, const std::string& group) const;

 private:
  const Duration after_;
  const TimePoint now_;
  std::string text_;
};

class WaitDiagnostics {
 public:
  WaitDiagnostics(const PeerTable& peers, const DesyncDetector& roll_call)
      : peers_(peers), desync_(roll_call) {}

  // `run`: as of age().
  GroupStatus status(const Op& op, const OpExecution* run, TimePoint now) const;
  // The deadline of an op has passed: who has not come to it.
  Error timed_out(const Op& op, TimePoint now) const;
  // Others have called an op, and we have called none after `last`. kIdle if there is none.
  GroupStatus awaited_here(uint64_t last) const;

 private:
  std::string awaited(const Op& op, const OpExecution* run) const;
  std::string awaited_data(const OpExecution& run) const;

  const PeerTable& peers_;
  const DesyncDetector& desync_;
};

class GroupReport {
 public:
  // `name` is the group's; `cost_source`: as GroupDescriptor's.
  GroupReport(std::string name, const std::string& cost_source, const ExecutionDelegate& delegate,
              const PeerTable& peers, const WaitDiagnostics& waits, const Collectives& collectives,
              const PointToPoint& point_to_point, const ServiceChannel& letters);

  // `failure`: the group's, or success.
  GroupStatus status(const Error& failure) const;
  std::string dump(const Error& failure) const;
  // Logs what waits for longer than `after`, each op once; 0: nothing.
  void warn_of_waits(Duration after) const;

 private:
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
