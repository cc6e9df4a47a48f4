#include "engine/op_planner.h"

#include "base/check.h"

namespace ringdist {

Error OpPlanner::prepare(Op& op) {
  const auto prepared = planner_.prepare(op.request);
  if (!prepared.ok()) return prepared.error();
  op.plan = prepared.value().plan;
  op.schedule = prepared.value().schedule;
  op.fingerprint = prepared.value().fingerprint;
  return {};
}

Error OpPlanner::prepare_called(Op& op) {
  if (Error error = prepare(op)) return error;
  op.called = op.fingerprint;
  return {};
}

// The acquire pairs with the release in on_formed(). A caller that sees true also sees the network
// in planner_, and needs no mutex.
Error OpPlanner::plan(const std::shared_ptr<Op>& op) {
  if (formed_.load(std::memory_order_acquire)) return prepare_called(*op);
  std::lock_guard lock(mutex_);
  if (Error error = prepare_called(*op)) return error;
  // The plan of a send or receive does not depend on the topology.
  if (!formed_ && !forgets_ && !op->request.envelope) planned_early_.push_back(op);
  return {};
}

void OpPlanner::on_formed(const Topology& topology, const NetworkCosts& costs) {
  if (topology.host_of.size() == 1) return;  // no op waited for the topology
  std::lock_guard lock(mutex_);
  check(!formed_, "a group is formed twice");
  if (topology.hosts.size() > 1 || costs != planner_.costs()) {
    planner_.set_network(topology, costs);
    for (const auto& op : planned_early_) {
      const Error error = prepare(*op);
      // All errors are the caller's, and plan() has reported them.
      check(!error, "a topology refuses what was accepted without it");
    }
  }
  formed_.store(true, std::memory_order_release);
}

void OpPlanner::forget() {
  // Freed after the mutex is released: freeing a tensor may need the GIL.
  std::vector<std::shared_ptr<Op>> held;
  std::lock_guard lock(mutex_);
  forgets_ = true;
  held.swap(planned_early_);
}

}  // namespace ringdist
