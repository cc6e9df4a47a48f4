// Planner: plans the ops of one group on one rank, and caches plans and compiled schedules. It has
// no lock; each function has its rule for threads. Results do not refer to the Planner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "base/error.h"
#include "base/network_costs.h"
#include "plan/compiled_schedule.h"
#include "plan/fingerprint.h"
#include "plan/op_spec.h"
#include "plan/plan.h"

namespace ringdist {

// Options of a Planner. All except `rank` are equal on all ranks.
struct PlannerOptions {
  int rank = 0;
  int size = 1;
  std::string algorithm;  // forced algorithm, or "" for the planner's choice
  bool layout_deterministic = false;
  int64_t segment_bytes = 0;  // maximum size of a message
  NetworkCosts costs = GroupCosts().constants;
};

// Everything that an op needs before it can run on one rank.
struct PreparedPlan {
  Plan plan;
  std::shared_ptr<const CompiledSchedule> schedule;  // null for sends, receives, and on devices
  Fingerprint fingerprint{};
};

class Planner {
 public:
  explicit Planner(PlannerOptions options) : options_(std::move(options)), costs_(options_.costs) {}

  // Set topology and costs for later plans, equal on all ranks, and clear the caches. Plans that
  // were returned before remain valid. One thread at a time.
  void set_topology(const Topology& topology) { set_network(topology, costs_); }
  void set_network(const Topology& topology, const NetworkCosts& costs);
  // Returns the costs of later plans.
  const NetworkCosts& costs() const { return costs_; }

  // Returns the results of plan(), schedule() and fingerprint_of(). Recent requests without codecs
  // and parts are found in a cache by one hash. Errors are those of plan(). One thread at a time.
  Result<PreparedPlan> prepare(const OpSpec& request);

  // Plans an op. Errors (kInvalidArgument, kNotSupported) are those of make_plan(),
  // check_codec_map() and compressed_segment_count(). Any thread, but not concurrently with
  // set_topology() and set_network().
  Result<Plan> plan(const OpSpec& request) const;

  // Return the results of the functions in plan.h for requests that plan() accepts. If the codec
  // map is refused, they return "" and 0. Any thread, but not concurrently with set_topology() and
  // set_network().
  std::string_view refusal(const Algorithm& algorithm, const OpSpec& request) const;
  Duration cost_of(const Algorithm& algorithm, const OpSpec& request) const;

  // Returns the schedule of this rank for a plan of the request. Recent schedules are cached. Sends
  // and receives use message_schedule() instead, once the peer is fixed. One thread at a time.
  std::shared_ptr<const CompiledSchedule> schedule(const OpSpec& request, const Plan& plan);

 private:
  // Collective, algorithm, elements of a segment, count, root and compression hash.
  using Key = std::tuple<Collective, const Algorithm*, int64_t, int64_t, int, uint64_t>;

  // Properties that determine a plan without codecs and parts.
  struct CacheKey {
    Collective kind;
    DType dtype;
    ReduceOp reduce_op;
    bool of_state;
    bool on_device;
    int root;
    int64_t count;
    bool operator==(const CacheKey&) const = default;
  };
  struct CacheKeyHash {
    size_t operator()(const CacheKey& asked) const;
  };

  // Plans a send or receive: segments of the maximum message size, and no algorithm.
  Result<Plan> plan_message(const OpSpec& request) const;
  // Adds segments and hash of the codec map to the plan of a compressed op.
  Result<Plan> cut(const OpSpec& request, Plan plan) const;
  // Returns the number of shards of an allreduce.
  int shard_count(const Plan& plan) const;
  // Returns the arguments of make_plan() for an op of this group. Errors are those of
  // check_codec_map().
  Result<PlanRequest> asked_for(const OpSpec& request) const;
  // Does the work of prepare() without the cache.
  Result<PreparedPlan> make(const OpSpec& request);

  const PlannerOptions options_;
  Topology topology_;  // empty if all ranks share one host
  NetworkCosts costs_;
  std::map<Key, std::shared_ptr<const CompiledSchedule>> schedules_;
  std::unordered_map<CacheKey, PreparedPlan, CacheKeyHash> prepared_;
};

// Returns the fingerprint of an op, which must be equal on all its ranks.
Fingerprint fingerprint_of(const OpSpec& request, const Plan& plan);

// Returns the schedule of a send to, or a receive from, `peer`. It has one step with segments of
// the maximum message size, which is equal at both ends because they have the same options.
std::shared_ptr<const CompiledSchedule> message_schedule(const OpSpec& request, const Plan& plan,
                                                         int peer);

}  // namespace ringdist
