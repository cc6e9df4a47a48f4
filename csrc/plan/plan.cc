#include "plan/plan.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/check.h"
#include "base/hash.h"

namespace ringdist {
namespace {

// Up to here the rank-ordered algorithms' single rounding to half precision costs little time.
constexpr int64_t kPreciseHalfBytes = 64 * 1024;
// Measured over shared memory, 2, 4 and 8 ranks on two cores. Up to so many bytes that come to each
// rank at once, one step is faster than several with less in each.
constexpr int64_t kSmallBytes = 64 * 1024;
// Where every rank sends to every other, each holds a connection to each: not in larger groups.
constexpr int kFewRanks = 16;
// Up to such shards two steps of an allreduce are faster than a ring's.
constexpr int64_t kShortShardBytes = 32 * 1024;
// From so many bytes a hop on a chain of hosts broadcasts faster than a tree, which takes the
// root's line more than once.
constexpr int64_t kChainedBytes = 128 * 1024;
// About what a 10 Gbit/s wire moves while a message takes one hop.
constexpr int64_t kHopBytes = 16 * 1024;
// Whole vectors and cache lines for every dtype, so that few segments begin unaligned.
constexpr int64_t kSegmentMultiple = 128;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool reduces(Collective kind) {
  return kind == Collective::kAllreduce || kind == Collective::kReduceScatter ||
         kind == Collective::kReduce;
}

// Elements that a rank brings to a reduction.
int64_t input_count(const PlanRequest& request) {
  if (request.kind != Collective::kReduceScatter) return request.count;
  if (request.parts.empty()) return request.count * request.size;
  return std::accumulate(request.parts.begin(), request.parts.end(), int64_t{0});
}

// A reduce's ring takes size - 1 hops more than rank order, which brings the root (size - 1) times
// 1 - 2 / size of the tensor more.
bool outruns_the_ring(const PlanRequest& request, int64_t element) {
  return request.count - 2 * (request.count / request.size) <= kHopBytes / element;
}

// Their sum must not wrap, but partial sums travel in the dtype: one rank adds up all there is.
bool averages_integers(const PlanRequest& request) {
  const bool integer =
      is_reducible(request.dtype, ReduceOp::kBand) && request.dtype != DType::kBool;
  return reduces(request.kind) && request.reduce_op == ReduceOp::kAvg && integer;
}

bool spans_hosts(const PlanRequest& request) { return request.topology.hosts.size() > 1; }

// Where several ranks share a host's line everybody's words to everybody would crowd it.
bool few_by_lines(const PlanRequest& request) {
  const bool shared = spans_hosts(request) && request.topology.most_on_a_host() > 1;
  return request.size <= kFewRanks && !shared;
}

// Several ranks share a host's line, and what codecs lose is not to be lost inside hosts, too.
bool spares_hosts(const PlanRequest& request) {
  const bool lossy =
      request.coding_loss == CodingLoss::kElements || request.coding_loss == CodingLoss::kBlocks;
  return lossy && spans_hosts(request) && request.topology.most_on_a_host() > 1;
}

// There everybody reads from everybody at no more than a ring costs.
bool few_on_one_host(const PlanRequest& request) {
  return request.size <= kFewRanks && !spans_hosts(request);
}

bool wants_rank_order(const PlanRequest& request) {
  if (averages_integers(request)) return true;
  if (request.layout_deterministic || request.coding_loss == CodingLoss::kBlocks) return true;
  const auto element = static_cast<int64_t>(dtype_size(request.dtype));
  if (request.kind == Collective::kReduce && outruns_the_ring(request, element)) return true;
  if (request.kind == Collective::kAllreduce && few_by_lines(request) &&
      request.count / request.size <= kShortShardBytes / element)
    return true;
  const bool sums = request.reduce_op == ReduceOp::kSum || request.reduce_op == ReduceOp::kAvg ||
                    request.reduce_op == ReduceOp::kPremulSum;
  const bool rounds = is_half(request.dtype) || request.coding_loss == CodingLoss::kElements;
  // A ring would round at every hop.
  if (is_half(request.dtype) && sums && request.kind != Collective::kReduce &&
      few_on_one_host(request))
    return true;
  return rounds && sums && input_count(request) <= kPreciseHalfBytes / element;
}

// What wants_rank_order() has found.
std::string_view why_rank_order(const PlanRequest& request) {
  if (averages_integers(request)) return "an average of integers is added up by one rank";
  if (request.layout_deterministic) return "deterministic='layout' needs rank order";
  if (request.coding_loss == CodingLoss::kBlocks)
    return "a codec of blocks: two encodings, however many ranks there are";
  return "few bytes, or half precision, which rank order rounds once";
}

bool serves(const Algorithm& algorithm, const PlanRequest& request) {
  return algorithm.serves_codecs || request.coding_loss == CodingLoss::kUncoded;
}

// The row whose list of that name has the collective.
const Algorithm* find_best(std::span<const Collective> Algorithm::* best, Collective kind) {
  for (const Algorithm& algorithm : algorithms())
    if (std::ranges::count(algorithm.*best, kind) > 0) return &algorithm;
  return nullptr;
}

// What says that it is best for so little, if anything does. Inside a host a small allgather's is
// best for any.
const Algorithm* small_algorithm(const PlanRequest& request) {
  const auto element = static_cast<int64_t>(dtype_size(request.dtype));
  const bool few = request.size <= kFewRanks;
  const int senders = few ? std::max(1, request.size - 1) : 1;  // to a rank at once
  const bool any_size = request.kind == Collective::kAllgather && few_on_one_host(request);
  if (!any_size && request.count > kSmallBytes / element / senders) return nullptr;
  return find_best(few ? &Algorithm::best_for_small : &Algorithm::best_for_small_of_many,
                   request.kind);
}

// What says that it is best between hosts, of what is not small.
const Algorithm* algorithm_between_hosts(const PlanRequest& request) {
  if (!spans_hosts(request)) return nullptr;
  const auto element = static_cast<int64_t>(dtype_size(request.dtype));
  const auto hops = static_cast<int64_t>(request.topology.hosts.size()) - 1;
  if (request.kind == Collective::kBroadcast && request.count < hops * kChainedBytes / element)
    return nullptr;
  return find_best(&Algorithm::best_between_hosts, request.kind);
}

struct Choice {
  const Algorithm* algorithm;
  std::string_view why;
};

// Else rank order where that is wanted - also by codecs, in place of what does not serve them:
// those that lose nothing give the bits of an op without - else what says that it is best.
Choice default_choice(const PlanRequest& request) {
  if (spares_hosts(request))
    if (const auto* best = find_best(&Algorithm::best_for_codecs_between_hosts, request.kind))
      return {best, "what stays inside a host is not encoded"};
  const bool ordered = reduces(request.kind) && wants_rank_order(request);
  const Algorithm* small = small_algorithm(request);
  const bool fits_small = small != nullptr && (small->rank_ordered || !ordered);
  if (fits_small && serves(*small, request)) return {small, "few bytes: few steps"};
  const Algorithm* between = algorithm_between_hosts(request);
  if (between != nullptr && !ordered && small == nullptr && serves(*between, request))
    return {between, "the group spans hosts: no byte takes a host's line twice"};
  const bool as_small = reduces(request.kind) && small != nullptr && small->rank_ordered;
  for (const Algorithm& algorithm : algorithms()) {
    if (ordered || as_small) {
      if (!algorithm.rank_ordered || !algorithm.supports(request.kind)) continue;
      return {&algorithm, why_rank_order(request)};
    }
    if (std::ranges::count(algorithm.best_for, request.kind) > 0)
      return {&algorithm, "it is best for this collective where nothing else is asked for"};
  }
  check_failed("no algorithm has this collective", std::source_location::current());
}

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

// Cuts `longest` elements into the fewest segments of at most `most` elements, of equal length as
// far as that goes.
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

uint64_t Plan::hash() const {
  Hash out;
  out.add(algorithm->name).add(segment_count);
  if (coding_hash != 0) out.add(coding_hash);
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
  if (request.coding_loss != CodingLoss::kUncoded && request.layout_deterministic)
    return Error(ErrorKind::kInvalidArgument,
                 "codec: deterministic='layout' needs uncompressed ops: the elements of a block "
                 "share a scale, so that an element's bits depend on where it lies");
  Result<Choice> chosen = choose(request);
  if (!chosen.ok()) return chosen.error();
  Plan plan;
  plan.algorithm = chosen.value().algorithm;
  plan.why = chosen.value().why;
  if (request.coding_loss != CodingLoss::kUncoded) return plan;
  // Not by the parts: a rank of an alltoall does not know what the others send each other, and
  // ranks that disagree about the parts are to be told by the edge where they do.
  const bool parts_differ = request.kind == Collective::kAlltoall || !request.parts.empty();
  const int shards = plan.algorithm->shard_count(request.size, request.topology);
  plan.segment_count =
      parts_differ
          ? most
          : even_segment(plan.algorithm->longest_range(request.kind, request.count, shards), most);
  return plan;
}

}  // namespace ringdist
