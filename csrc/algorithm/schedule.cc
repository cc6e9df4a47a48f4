#include "algorithm/schedule.h"

#include <algorithm>
#include <array>
#include <source_location>
#include <utility>

#include "base/check.h"

namespace ringdist {
namespace {

// Returns the bounds of parts, or of `count` for each rank if there are none.
std::vector<int64_t> bounds_of(const Shape& shape, const std::vector<int64_t>& parts) {
  check(parts.empty() || parts.size() == static_cast<size_t>(shape.size),
        "parts that are not one per rank");
  std::vector<int64_t> bounds{0};
  for (size_t i = 0; i < static_cast<size_t>(shape.size); ++i) {
    const int64_t count = parts.empty() ? shape.count : parts[i];
    check(count >= 0, "a part of a negative count");
    bounds.push_back(bounds.back() + count);
  }
  return bounds;
}

}  // namespace

std::string_view edge_kind_name(EdgeKind edge_kind) {
  switch (edge_kind) {
    case EdgeKind::kContribution:
      return "contribution";
    case EdgeKind::kResult:
      return "result";
    case EdgeKind::kRelay:
      return "relay";
    case EdgeKind::kIntraHost:
      return "host's own contribution";
  }
  check_failed("an edge mark that there is not", std::source_location::current());
}

// Rows are in the order of the enum. Columns: name, reduces, has_root, in_place, takes_joined.
constexpr std::array<CollectiveTraits, kCollectives> kTraits{{
    {"all_reduce", true, false, true, true},
    {"broadcast", false, true, true},
    {"all_gather"},
    {"reduce_scatter", true},
    {"barrier", false, false, false, true},
    {"reduce", true, true, true},
    {"gather", false, true},
    {"scatter", false, true},
    {"all_to_all"},
    {"send/recv"},
}};
static_assert(!kTraits.back().name.empty(), "a collective without a row");

const CollectiveTraits& traits_of(Collective kind) {
  check(is_collective(kind), "a collective that there is not");
  return kTraits[static_cast<size_t>(kind)];
}

Step Step::send(Range range, std::vector<int> to, EdgeKind edge_kind) {
  Step step;
  step.kind = StepKind::kSend;
  step.edge_kind = edge_kind;
  step.range = range;
  step.to = std::move(to);
  return step;
}

Step Step::recv(Range range, int from, EdgeKind edge_kind) {
  Step step;
  step.kind = StepKind::kRecv;
  step.edge_kind = edge_kind;
  step.range = range;
  step.from = from;
  return step;
}

Step Step::reduce(Range range, std::vector<Source> sources, bool finish) {
  Step step;
  step.kind = StepKind::kReduce;
  step.edge_kind = EdgeKind::kContribution;
  step.range = range;
  step.sources = std::move(sources);
  step.finish = finish;
  return step;
}

Step Step::relay(Range range, int from, std::vector<int> to) {
  Step step;
  step.kind = StepKind::kRelay;
  step.edge_kind = EdgeKind::kRelay;
  step.range = range;
  step.from = from;
  step.to = std::move(to);
  return step;
}

Step Step::copy(Range range, Range source) {
  Step step;
  step.kind = StepKind::kCopy;
  step.range = range;
  step.sources = {Source{-1, source}};
  return step;
}

std::string_view collective_name(Collective kind) {
  return is_collective(kind) ? traits_of(kind).name : "unknown collective";
}

std::vector<int64_t> even_shards(int64_t count, int shards) {
  check(count >= 0 && shards >= 1, "shards of a negative count or for no rank");
  const int64_t each = count / shards;
  const int64_t longer = count % shards;
  std::vector<int64_t> bounds(static_cast<size_t>(shards) + 1);
  for (int64_t i = 0; i <= shards; ++i)
    bounds[static_cast<size_t>(i)] = i * each + std::min(i, longer);
  return bounds;
}

std::vector<int64_t> shards_of(const Shape& shape, int shards) {
  if (shape.shards.empty()) return even_shards(shape.count, shards);
  check(shape.shards.size() == static_cast<size_t>(shards) + 1 && shape.shards.front() == 0 &&
            shape.shards.back() == shape.count,
        "shards that do not cover the count");
  return shape.shards;
}

std::vector<int64_t> input_bounds(const Shape& shape) {
  return bounds_of(shape, shape.input_parts);
}

std::vector<int64_t> output_bounds(const Shape& shape) {
  return bounds_of(shape, shape.output_parts);
}

const CollectiveImpl* Algorithm::find(Collective kind) const {
  const auto found = std::ranges::find(impls, kind, &CollectiveImpl::kind);
  return found == impls.end() ? nullptr : &*found;
}

std::vector<Collective> Algorithm::collectives() const {
  std::vector<Collective> out;
  for (const CollectiveImpl& one : impls) out.push_back(one.kind);
  return out;
}

const CollectiveImpl& Algorithm::impl(Collective kind) const {
  const CollectiveImpl* found = find(kind);
  if (found == nullptr)
    check_failed(std::string(name) + " has no schedule for " + std::string(collective_name(kind)),
                 std::source_location::current());
  return *found;
}

int Algorithm::shard_count(int size, const Topology& topology) const {
  if (!hierarchical || topology.hosts.empty()) return size;
  return topology.columns() * static_cast<int>(topology.hosts.size());
}

}  // namespace ringdist
