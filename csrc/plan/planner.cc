#include "plan/planner.h"

#include <utility>

#include "base/check.h"
#include "plan/compressed_plan.h"

namespace ringdist {
namespace {

// Limit of entries in each of the two tables. A table that has reached it is cleared.
constexpr size_t kMaxSchedules = 256;

bool has_parts(const OpSpec& request) {
  return !request.input_parts.empty() || !request.output_parts.empty();
}

// Returns true if some rank cannot compute the sizes of all edges.
bool sizes_differ(const OpSpec& request) {
  return request.kind == Collective::kAlltoall || has_parts(request);
}

// Returns Fingerprint::plan. Sends and receives have no plan that ranks could disagree about.
uint64_t plan_part(const OpSpec& request, const Plan& plan) {
  const uint64_t where = request.on_device ? Fingerprint::kOnDevice : 0;
  if (request.envelope) return where;
  const uint8_t codec = request.codec_map ? request.codec_map->codec_id() : 0;
  return Fingerprint::plan_part(plan.hash(), codec) | where;
}

}  // namespace

// A plain combination mixes enough even for counts that are multiples of powers of two, because the
// table's size is a prime.
size_t Planner::CacheKeyHash::operator()(const CacheKey& asked) const {
  const auto small = static_cast<size_t>(asked.kind) | static_cast<size_t>(asked.dtype) << 8 |
                     static_cast<size_t>(asked.reduce_op) << 16 |
                     static_cast<size_t>(asked.of_state) << 24 |
                     static_cast<size_t>(asked.on_device) << 25;
  return static_cast<size_t>(asked.count) ^ small << 32 ^ static_cast<size_t>(asked.root) << 20;
}

void Planner::set_network(const Topology& topology, const NetworkCosts& costs) {
  costs_ = costs;
  schedules_.clear();
  prepared_.clear();
  topology_ = topology.hosts.size() > 1 ? topology : Topology();
}

Result<PreparedPlan> Planner::prepare(const OpSpec& request) {
  if (request.envelope || request.codec_map || has_parts(request)) return make(request);
  const CacheKey asked{request.kind,      request.dtype, request.reduce_op, request.of_state,
                       request.on_device, request.root,  request.count};
  if (const auto it = prepared_.find(asked); it != prepared_.end()) return it->second;
  auto made = make(request);
  if (!made.ok()) return made;
  if (prepared_.size() >= kMaxSchedules) prepared_.clear();
  prepared_.emplace(asked, made.value());
  return made;
}

Result<PreparedPlan> Planner::make(const OpSpec& request) {
  const auto planned = plan(request);
  if (!planned.ok()) return planned.error();
  PreparedPlan out{planned.value(), nullptr, fingerprint_of(request, planned.value())};
  if (!request.envelope && !request.on_device) out.schedule = schedule(request, out.plan);
  return out;
}

// Plans a send or receive.
Result<Plan> Planner::plan_message(const OpSpec& request) const {
  const Envelope& envelope = *request.envelope;
  const bool any = !envelope.sends && envelope.peer == Envelope::kAnySource;
  check(any || (envelope.peer >= 0 && envelope.peer < options_.size),
        "a send or a receive with a rank that the group does not have");
  check(envelope.tag >= 0, "a negative tag");
  Plan plan;
  plan.segment_count = options_.segment_bytes / static_cast<int64_t>(dtype_size(request.dtype));
  if (plan.segment_count >= 1) return plan;
  return Error(ErrorKind::kInvalidArgument,
               "segment_bytes: " + std::to_string(options_.segment_bytes) + " holds no element");
}

Result<Plan> Planner::plan(const OpSpec& request) const {
  if (request.envelope) return plan_message(request);
  const auto wanted = asked_for(request);
  if (!wanted.ok()) return wanted.error();
  auto made = make_plan(wanted.value());
  return made.ok() && request.codec_map ? cut(request, made.value()) : made;
}

std::string_view Planner::refusal(const Algorithm& algorithm, const OpSpec& request) const {
  const auto wanted = asked_for(request);
  return wanted.ok() ? ringdist::refusal(algorithm, wanted.value()) : "";
}

Duration Planner::cost_of(const Algorithm& algorithm, const OpSpec& request) const {
  const auto wanted = asked_for(request);
  return wanted.ok() ? ringdist::cost_of(algorithm, wanted.value()) : Duration(0);
}

Result<PlanRequest> Planner::asked_for(const OpSpec& request) const {
  PlanRequest wanted;
  wanted.kind = request.kind;
  wanted.dtype = request.dtype;
  wanted.reduce_op = request.reduce_op;
  wanted.count = request.count;
  if (request.kind == Collective::kAllgather) wanted.parts = request.output_parts;
  if (request.kind == Collective::kReduceScatter) wanted.parts = request.input_parts;
  wanted.root = request.root;
  wanted.size = options_.size;
  wanted.topology = topology_;
  wanted.costs = costs_;
  wanted.forced_algorithm = options_.algorithm;
  wanted.layout_deterministic = options_.layout_deterministic;
  wanted.segment_bytes = options_.segment_bytes;
  if (request.codec_map) {
    if (Error error = check_codec_map(request, options_.size)) return error;
    wanted.compression_loss = loss_of(*request.codec_map);
  }
  return wanted;
}

Result<Plan> Planner::cut(const OpSpec& request, Plan plan) const {
  const CompressedRanges ranges{options_.size, shard_count(plan),
                                plan.algorithm->uncompressed_intra_host(topology_)};
  const auto count = compressed_segment_count(request, ranges, options_.segment_bytes);
  if (!count.ok()) return count.error();
  plan.segment_count = count.value();
  plan.compression_hash = compression_hash(request, ranges.shards);
  return plan;
}

int Planner::shard_count(const Plan& plan) const {
  return plan.algorithm->shard_count(options_.size, topology_);
}

std::shared_ptr<const CompiledSchedule> Planner::schedule(const OpSpec& request, const Plan& plan) {
  Shape shape{options_.rank, options_.size,       request.root,
              request.count, request.input_parts, request.output_parts};
  const auto make = [&] {
    shape.topology = topology_;
    return compile(plan.algorithm->build(request.kind, shape), plan.segment_count);
  };
  if (has_parts(request)) return make();  // the same parts seldom come again
  const Key key{request.kind,  plan.algorithm, plan.segment_count,
                request.count, request.root,   plan.compression_hash};
  if (auto it = schedules_.find(key); it != schedules_.end()) return it->second;
  if (schedules_.size() >= kMaxSchedules) schedules_.clear();
  if (request.codec_map && request.kind == Collective::kAllreduce)
    shape.shards = compressed_shards(*request.codec_map, shard_count(plan));
  return schedules_[key] = make();
}

Fingerprint fingerprint_of(const OpSpec& request, const Plan& plan) {
  return {request.kind,
          request.dtype,
          request.reduce_op,
          0,
          request.of_state ? Fingerprint::kOfState : request.root,
          plan_part(request, plan),
          sizes_differ(request) ? Fingerprint::kPerEdge : request.count};
}

std::shared_ptr<const CompiledSchedule> message_schedule(const OpSpec& request, const Plan& plan,
                                                         int peer) {
  Schedule schedule;
  schedule.steps.push_back(
      request.envelope->sends
          ? Step::send({BufferId::kInput, 0, request.count}, {peer}, EdgeKind::kResult)
          : Step::recv({BufferId::kOutput, 0, request.count}, peer, EdgeKind::kResult));
  return compile(std::move(schedule), plan.segment_count);
}

}  // namespace ringdist
