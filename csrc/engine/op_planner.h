// OpPlanner: plans the ops of a group on one rank. The topology and rank 0's cost constants are
// available only when the group has formed. Ops that are called earlier are planned for one host
// with this rank's costs, which finds all errors of the caller. Before they begin they are planned
// again.
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

// Plans ops before and after the group has formed. plan() is called by one thread at a time.
class OpPlanner {
 public:
  // A group of one rank counts as formed: it needs no topology.
  explicit OpPlanner(PlannerOptions options)
      : formed_(options.size == 1), planner_(std::move(options)) {}

  // Sets plan, schedule and fingerprint of an op that no other thread uses yet. Before the group
  // has formed, keeps a reference to a collective, for on_formed(). Errors: those of
  // Planner::prepare(). One thread at a time.
  Error plan(const std::shared_ptr<Op>& op);

  // Sets the topology and costs of the formed group, and plans the earlier ops again if their plans
  // may change. Called once, by the progress engine, before any op begins. If it throws, those ops
  // have no valid plan and the group must not begin.
  void on_formed(const Topology& topology, const NetworkCosts& costs);
  // Releases the ops that were kept for on_formed(), and keeps no further ones. Called when the
  // group has formed or never will. Any thread.
  void forget();

 private:
  // Sets plan, schedule and fingerprint.
  Error prepare(Op& op);
  // The same, for the first plan of an op: it also sets Op::called, which later plans keep.
  Error prepare_called(Op& op);

  // Once this is true, only plan() uses planner_, and it does so without the mutex.
  std::atomic<bool> formed_;
  std::mutex mutex_;  // a leaf: no other lock is taken while it is held
  Planner planner_;
  // The ops that on_formed() plans again.
  std::vector<std::shared_ptr<Op>> planned_early_ RINGDIST_GUARDED_BY(mutex_);
  bool forgets_ RINGDIST_GUARDED_BY(mutex_) = false;  // set by forget()
};

}  // namespace ringdist
