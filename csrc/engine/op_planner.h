// Plans the ops of a group on one rank. Which ranks share a host, and by which costs rank 0
// plans, is known when the group has formed: ops that are called before are planned as of one host
// and by this rank's costs, which finds all that can be refused, and once more before they begin.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/network_costs.h"
#include "base/thread_annotations.h"
#include "base/topology.h"
#include "engine/op/op.h"
#include "plan/planner.h"

namespace ringdist {

class OpPlanner {
 public:
  // A group of one rank waits for no topology.
  explicit OpPlanner(PlannerOptions options)
      : formed_(options.size == 1), planner_(std::move(options)) {}

  // Sets plan, schedule and fingerprint of an op that nobody else knows yet. Errors: as of
  // Planner::prepare(). One thread at a time.
  Error plan(const std::shared_ptr<Op>& op);

  // The group has formed. Once, on the lane, before its ops begin: those planned before get other
  // plans. If it throws they have not, and the group must not begin.
  void on_formed(const Topology& topology, const NetworkCosts& costs);
  // It has formed, or will not: no op is held. Any thread.
  void forget();

 private:
  Error prepare(Op& op);
  Error prepare_called(Op& op);  // the first time

  // From then on only plan() uses the planner, without the mutex.
  std::atomic<bool> formed_;
  std::mutex mutex_;  // a leaf
  Planner planner_;
  std::vector<std::shared_ptr<Op>> planned_early_ RINGDIST_GUARDED_BY(mutex_);
  bool forgets_ RINGDIST_GUARDED_BY(mutex_) = false;
};

}  // namespace ringdist
