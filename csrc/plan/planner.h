// Plans the ops of one group on one rank, and keeps what it has compiled.
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

// Equal on all ranks but for `rank`.
struct PlannerOptions {
  int rank = 0;
  int size = 1;
  std::string algorithm;  // "": the planner's choice
  bool layout_deterministic = false;
  int64_t segment_bytes = 0;  // the most that a message may carry
  NetworkCosts costs = GroupCosts().constants;
};

// All that an op needs before it can run on one rank.
struct PreparedPlan {
  Plan plan;
  std::shared_ptr<const CompiledSchedule> schedule;  // null: of messages and on devices
  Fingerprint fingerprint{};
};

class Planner {
 public:
  explicit Planner(PlannerOptions options) : options_(std::move(options)), costs_(options_.costs) {}

  // From here on. What was planned before stays as it is. One thread at a time.
  void set_topology(const Topology& topology) { set_network(topology, costs_); }
  void set_network(const Topology& topology, const NetworkCosts& costs);
  const NetworkCosts& costs() const { return costs_; }

  // plan(), schedule() and fingerprint_of(). What was asked lately is found by one hash where it
  // has neither codecs nor parts of its own. One thread at a time.
  Result<PreparedPlan> prepare(const OpSpec& request);

  // Errors (kInvalidArgument, kNotSupported): as make_plan(), check_codec_map() and
  // compressed_segment_count(). Any thread, but not beside set_topology().
  Result<Plan> plan(const OpSpec& request) const;

  // As of plan.h, for what plan() does not refuse. Any thread, but not beside set_topology().
  std::string_view refusal(const Algorithm& algorithm, const OpSpec& request) const;
  Duration cost_of(const Algorithm& algorithm, const OpSpec& request) const;

  // What this rank does for that plan of that request; those of the last plans are kept. A send or
  // a receive has none before its peer is known: see message_schedule(). One thread at a time.
  std::shared_ptr<const CompiledSchedule> schedule(const OpSpec& request, const Plan& plan);

 private:
  using Key = std::tuple<Collective, const Algorithm*, int64_t, int64_t, int, uint64_t>;

  // What a plan without codecs and parts of its own depends on.
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

  Result<Plan> plan_message(const OpSpec& request) const;
  // The plan of a coded op, with its block map's segments and hash.
  Result<Plan> cut(const OpSpec& request, Plan plan) const;
  int shard_count(const Plan& plan) const;  // of an allreduce
  Result<PlanRequest> asked_for(const OpSpec& request) const;
  Result<PreparedPlan> make(const OpSpec& request);

  const PlannerOptions options_;
  Topology topology_;  // as in Shape
  NetworkCosts costs_;
  std::map<Key, std::shared_ptr<const CompiledSchedule>> schedules_;
  std::unordered_map<CacheKey, PreparedPlan, CacheKeyHash> prepared_;
};

// What all ranks of the op must have alike.
Fingerprint fingerprint_of(const OpSpec& request, const Plan& plan);

// Of a send or a receive, whose other end is `peer`: one step, in segments as long as a message may
// be, since both ends have the same options.
std::shared_ptr<const CompiledSchedule> message_schedule(const OpSpec& request, const Plan& plan,
                                                         int peer);

}  // namespace ringdist
