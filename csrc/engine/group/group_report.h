// What a group does, in words: for `dump`, and for the log when something takes long. It only asks.
//
// Every call comes with the lane's driver token held.
#pragma once

#include <string>

#include "engine/group/collectives.h"
#include "engine/group/peer_table.h"
#include "engine/group/point_to_point.h"
#include "engine/group/service_channel.h"
#include "engine/group/wait_diagnostics.h"
#include "engine/op/execution_delegate.h"

namespace ringdist {

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
