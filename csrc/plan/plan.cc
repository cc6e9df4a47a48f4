#include "plan/plan.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "algorithm/cost.h"
#include "base/check.h"
#include "base/hash.h"

namespace ringdist {
namespace {

// Size up to which rank-ordered algorithms, which round to half precision once, cost little time.
constexpr int64_t kPreciseHalfBytes = 64 * 1024;
// Limit of ranks for algorithms in which every rank sends to every other, because each then needs a
// connection to each. In hierarchical algorithms it limits the connections of a leader. A leader
// has one per other host, or several if its host has fewer ranks than others.
constexpr int kFewRanks = 16;
// Costs are predicted by formulas. Within this factor of the least cost, preference decides.
constexpr double kAsGood = 1.03;
// A multiple of vectors and cache lines for every dtype, so that few segments begin unaligned.
constexpr int64_t kSegmentMultiple = 128;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Returns the number of elements that a rank contributes to a reduction.
int64_t input_count(const PlanRequest& request) {
  if (request.kind != Collective::kReduceScatter) return request.count;
  if (request.parts.empty()) return request.count * request.size;
  return std::accumulate(request.parts.begin(), request.parts.end(), int64_t{0});
}

// Returns true for averages of integers. Their sums must not wrap, but partial sums are sent in the
// dtype. So one rank has to add up all values.
bool averages_integers(const PlanRequest& request) {
  const bool integer =
      is_reducible(request.dtype, ReduceOp::kBand) && request.dtype != DType::kBool;
  return reduces(request.kind) && request.reduce_op == ReduceOp::kAvg && integer;
}

bool spans_hosts(const PlanRequest& request) { return request.topology.hosts.size() > 1; }

// Returns true if several ranks share the network link of a host.
bool shares_hosts(const PlanRequest& request) {
  return spans_hosts(request) && request.topology.most_on_a_host() > 1;
}

// Returns true if values should lose precision between hosts only, not also inside them.
bool spares_hosts(const PlanRequest& request) {
  const bool lossy = request.compression_loss == CompressionLoss::kElements ||
                     request.compression_loss == CompressionLoss::kBlocks;
  return lossy && shares_hosts(request);
}

// Returns true for groups in which every rank can read from all others at the cost of a ring.
bool few_on_one_host(const PlanRequest& request) {
  return request.size <= kFewRanks && !spans_hosts(request);
}

// Returns true if the op should round once, in rank order, and that costs little.
bool rounds_in_few_steps(const PlanRequest& request) {
  if (!traits_of(request.reduce_op).sums) return false;
  // A ring would round at every hop.
  if (is_half(request.dtype) && request.kind != Collective::kReduce && few_on_one_host(request))
    return true;
  const auto element = static_cast<int64_t>(dtype_size(request.dtype));
  const bool rounds =
      is_half(request.dtype) || request.compression_loss == CompressionLoss::kElements;
  return rounds && input_count(request) <= kPreciseHalfBytes / element;
}

// Returns the reason for which the op must be reduced in rank order, or "".
std::string_view why_rank_order(const PlanRequest& request) {
  if (!reduces(request.kind)) return "";
  if (averages_integers(request)) return "an average of integers is added up by one rank";
  if (request.layout_deterministic) return "deterministic='layout' needs rank order";
  if (request.compression_loss == CompressionLoss::kBlocks)
    return "a codec of blocks: two encodings, however many ranks there are";
  if (rounds_in_few_steps(request)) return "half precision, which rank order rounds once";
  return "";
}

// Returns true if the algorithm can run with the op's codecs, or the op has none.
bool serves(const Algorithm& algorithm, const PlanRequest& request) {
  return algorithm.serves_codecs || request.compression_loss == CompressionLoss::kUncompressed;
}

// Returns the bytes of a part, or of the mean part if parts differ.
double part_bytes(const PlanRequest& request) {
  const auto element = static_cast<double>(dtype_size(request.dtype));
  if (request.parts.empty()) return static_cast<double>(request.count) * element;
  const auto all = std::accumulate(request.parts.begin(), request.parts.end(), int64_t{0});
  return static_cast<double>(all) / request.size * element;
}

// Returns true if the group is too large for an algorithm with a connection between each two ranks.
bool is_too_large_for(const Algorithm& algorithm, const PlanRequest& request) {
  if (!algorithm.hierarchical || !spans_hosts(request)) return request.size > kFewRanks;
  const auto& hosts = request.topology.hosts;
  const auto least = std::ranges::min_element(hosts, {}, &std::vector<int>::size)->size();
  const int64_t carried = ceil_div(request.topology.most_on_a_host(), static_cast<int64_t>(least));
  return static_cast<int64_t>(hosts.size()) * carried > kFewRanks;
}

struct Candidates {
  std::vector<const Algorithm*> all;
  bool left_out = false;  // some are left out because the group is large
};

// Returns the algorithms that can run the op, the preferred ones first. `ordered` requires rank
// order. In a large group, the first pass leaves out algorithms with many connections. If nothing
// is left, a second pass takes them, except for those that are only_for_small_groups.
Candidates candidates(const PlanRequest& request, bool ordered) {
  Candidates out;
  for (const bool spares : {true, false}) {
    for (const Algorithm& algorithm : algorithms()) {
      if (!algorithm.supports(request.kind) || !refusal(algorithm, request).empty()) continue;
      if (ordered && !algorithm.rank_ordered) continue;
      if (!spans_hosts(request) && algorithm.hierarchical) continue;
      const bool for_small_groups =
          spares && algorithm.impl(request.kind).preference.for_small_groups;
      if ((for_small_groups || algorithm.only_for_small_groups) &&
          is_too_large_for(algorithm, request))
        out.left_out = true;
      else
        out.all.push_back(&algorithm);
    }
    if (!out.all.empty()) break;
  }
  check(!out.all.empty(), "no algorithm has this collective");
  const auto rank = [&request](const Algorithm* one) {
    const Preference& preference = one->impl(request.kind).preference;
    if (spans_hosts(request) && preference.best_between_hosts) return 0;
    if (shares_hosts(request) && preference.best_between_shared_hosts) return 0;
    if (preference.best) return 1;
    return preference.for_small_groups ? 3 : 2;  // fewer connections are better
  };
  std::ranges::stable_sort(out.all, {}, rank);
  return out;
}

// Makes the query for cost formulas. The query points to the request's topology, so the request
// must outlive it.
CostQuery question_of(const PlanRequest& request) {
  return {request.kind,
          part_bytes(request),
          CostLayout(request.size, request.topology, request.root),
          request.costs,
          static_cast<double>(request.segment_bytes),
          static_cast<double>(dtype_size(request.dtype))};
}

// Returns the first algorithm with a cost of at most kAsGood times the least cost.
const Algorithm* cheapest(const std::vector<const Algorithm*>& all, const PlanRequest& request) {
  if (all.size() == 1) return all.front();
  CostQuery question = question_of(request);
  if (request.kind == Collective::kAlltoall) question.bytes = 0;  // ranks have different values
  std::vector<double> costs;
  for (const Algorithm* one : all)
    costs.push_back(static_cast<double>(one->cost(question).count()));
  const double most = kAsGood * *std::ranges::min_element(costs);
  const auto first = std::ranges::find_if(costs, [most](double cost) { return cost <= most; });
  check(first != costs.end(), "costs of which none is the least");
  return all[static_cast<size_t>(first - costs.begin())];
}

std::string_view why_cheapest(bool alone, bool left_out) {
  if (alone)
    return left_out ? "nothing else serves so many ranks with few connections"
                    : "nothing else serves";
  return left_out ? "of those that need few connections, for so many ranks, none takes less by 3 % "
                    "or more by its cost formula"
                  : "by its cost formula none takes less by 3 % or more";
}

struct Choice {
  const Algorithm* algorithm;
  std::string_view why;
};

// Chooses an algorithm without a forced one. With lossless codecs it takes the algorithm of an
// uncompressed op if that serves codecs. Otherwise it prefers one that adds up in the same order,
// which gives the same bits.
Choice default_choice(const PlanRequest& request) {
  if (spares_hosts(request))
    for (const Algorithm& algorithm : algorithms())
      if (const CollectiveImpl* impl = algorithm.find(request.kind);
          impl != nullptr && impl->preference.best_for_codecs_between_hosts)
        return {&algorithm, "what stays inside a host is not encoded"};
  if (request.compression_loss == CompressionLoss::kNothing) {
    PlanRequest plain = request;
    plain.compression_loss = CompressionLoss::kUncompressed;
    const Choice uncoded = default_choice(plain);
    if (serves(*uncoded.algorithm, request)) return uncoded;
    const auto left = candidates(request, reduces(request.kind) && uncoded.algorithm->rank_ordered);
    return {cheapest(left.all, request),
            "it loses nothing, and adds up as an op without a codec if it can"};
  }
  const std::string_view order = why_rank_order(request);
  const auto [all, left_out] = candidates(request, !order.empty());
  if (!order.empty()) return {cheapest(all, request), order};
  return {cheapest(all, request), why_cheapest(all.size() == 1, left_out)};
}

// Chooses the forced algorithm if it can run the op, and another one otherwise. An algorithm that
// cannot give layout_deterministic is an error instead, because two settings of the user contradict
// each other.
Result<Choice> choose(const PlanRequest& request) {
  if (!request.forced_algorithm.empty()) {
    const std::string name(request.forced_algorithm);
    const Algorithm* forced = find_algorithm(name);
    if (forced == nullptr)
      return Error(ErrorKind::kInvalidArgument,
                   "unknown algorithm '" + name + "'; have: " + algorithm_names());
    if (forced->supports(request.kind) && serves(*forced, request)) {
      if (request.layout_deterministic && reduces(request.kind) && !forced->rank_ordered)
        return Error(ErrorKind::kInvalidArgument,
                     "algorithm '" + name + "' " + std::string(refusal(*forced, request)));
      if (refusal(*forced, request).empty()) return Choice{forced, "it is forced"};
    }
  }
  return default_choice(request);
}

// Returns the elements of a segment if `longest` elements are cut into the fewest segments of at
// most `most` elements, with lengths as equal as possible.
int64_t even_segment(int64_t longest, int64_t most) {
  if (longest == 0) return 1;
  const int64_t even = ceil_div(longest, ceil_div(longest, most));
  const int64_t rounded = ceil_div(even, kSegmentMultiple) * kSegmentMultiple;
  return rounded <= most ? rounded : even;
}

}  // namespace

std::string_view refusal(const Algorithm& algorithm, const PlanRequest& request) {
  if (!serves(algorithm, request)) return "serves no codecs";
  if (!reduces(request.kind) || algorithm.rank_ordered) return "";
  if (request.layout_deterministic)
    return "does not reduce in rank order, which deterministic='layout' needs";
  if (averages_integers(request))
    return "does not reduce in rank order, which an average of integers needs";
  return "";
}

Duration cost_of(const Algorithm& algorithm, const PlanRequest& request) {
  return algorithm.cost(question_of(request));
}

uint64_t Plan::hash() const {
  Hash out;
  out.add(algorithm->name).add(segment_count);
  if (compression_hash != 0) out.add(compression_hash);
  return out.value();
}

Result<Plan> make_plan(const PlanRequest& request) {
  check(request.count >= 0 && request.size >= 1, "a plan for a negative count or no rank");
  check(request.parts.empty() || request.parts.size() == static_cast<size_t>(request.size),
        "a plan for parts that are not one per rank");
  const int64_t most = request.segment_bytes / static_cast<int64_t>(dtype_size(request.dtype));
  if (most < 1)
    return Error(ErrorKind::kInvalidArgument,
                 "a segment of " + std::to_string(request.segment_bytes) +
                     " bytes holds no element of " + std::string(dtype_name(request.dtype)));
  if (request.compression_loss != CompressionLoss::kUncompressed && request.layout_deterministic)
    return Error(ErrorKind::kInvalidArgument,
                 "codec: deterministic='layout' takes uncompressed ops only: in most codecs an "
                 "element's bits depend on the block that it lies in, and no codec is excepted");
  Result<Choice> chosen = choose(request);
  if (!chosen.ok()) return chosen.error();
  Plan plan;
  plan.algorithm = chosen.value().algorithm;
  plan.why = chosen.value().why;
  if (request.compression_loss != CompressionLoss::kUncompressed) return plan;
  // Segments must not depend on parts. A rank of an alltoall does not have the sizes between other
  // ranks. And if ranks disagree about parts, the error should come from the edge where they
  // differ.
  const bool parts_differ = request.kind == Collective::kAlltoall || !request.parts.empty();
  const int shards = plan.algorithm->shard_count(request.size, request.topology);
  plan.segment_count =
      parts_differ
          ? most
          : even_segment(plan.algorithm->impl(request.kind).longest(request.count, shards), most);
  return plan;
}

}  // namespace ringdist
