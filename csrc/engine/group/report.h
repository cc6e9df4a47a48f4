// What a group does, in words: for `dump`, and for the log when something takes long. It only asks.
//
// Every call comes with the lane's driver token held.
#pragma once

#include <string>

#include "engine/group/collectives.h"
#include "engine/group/letters.h"
#include "engine/group/peers.h"
#include "engine/group/point_to_point.h"
#include "engine/group/waits.h"
#include "engine/op/port.h"

namespace ringdist {

class Report {
 public:
  // `name` is the group's; `plans_by`: as Membership's.
  Report(std::string name, const std::string& plans_by, const Port& port, const Peers& peers,
         const Waits& waits, const Collectives& collectives, const PointToPoint& point_to_point,
         const Letters& letters);

  // `failure`: the group's, or success.
  GroupVerdict verdict(const Error& failure) const;
  std::string dump(const Error& failure) const;
  // Logs what waits for longer than `after`, each op once; 0: nothing.
  void warn_of_waits(Duration after) const;

 private:
  template <typename Each>
  void for_each_watched(const Each& each) const;

  const std::string name_;
  const std::string plans_by_;
  const Port& port_;
  const Peers& peers_;
  const Waits& waits_;
  const Collectives& collectives_;
  const PointToPoint& point_to_point_;
  const Letters& letters_;
};

}  // namespace ringdist
