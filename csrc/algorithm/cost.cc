#include "algorithm/cost.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace ringdist {
namespace {

// The time of adding a byte, relative to copying it, without the reading that is counted as a copy.
// Fitted to allreduces of two ranks, in one step and in two: they break even at 256 KiB.
constexpr double kAddition = 0.25;

// Returns nanoseconds; a rate of 0 takes no time.
double time_at(double bytes, double bytes_per_second) {
  return bytes_per_second > 0 ? bytes * 1e9 / bytes_per_second : 0;
}

// Returns the nanoseconds of messages on a line, with their framing.
double time_on(const LinkCosts& line, double bytes, double messages) {
  return time_at(bytes + messages * static_cast<double>(line.framing), line.bytes_per_second);
}

double nanoseconds(Duration duration) { return static_cast<double>(duration.count()); }

}  // namespace

CostLayout::CostLayout(int ranks, const Topology& topology, int root)
    : size(ranks), root(root), most(ranks), least(ranks), at_root(ranks) {
  if (topology.hosts.size() < 2) return;
  this->topology = &topology;
  at_root = static_cast<int>(
      topology.hosts[static_cast<size_t>(topology.host_of[static_cast<size_t>(root)])].size());
  hosts = static_cast<int>(topology.hosts.size());
  columns = topology.columns();
  most = 1;
  std::vector<int> leave(topology.hosts.size());
  for (int rank = 0; rank < size; ++rank) {
    if (topology.same_host(rank, (rank + 1) % size)) continue;
    ++crossings;
    int& here = leave[static_cast<size_t>(topology.host_of[static_cast<size_t>(rank)])];
    leaving = std::max(leaving, ++here);
  }
  for (const std::vector<int>& host : topology.hosts) {
    const auto here = static_cast<int>(host.size());
    most = std::max(most, here);
    least = std::min(least, here);
    crowd = std::max(crowd, static_cast<double>(here) * elsewhere(here));
  }
}

HierarchicalLoad hierarchical_load(const CostQuery& question, double ranks) {
  const CostLayout& at = question.layout;
  const double hosts = at.hosts;
  const bool whole = question.kind == Collective::kAllreduce;
  double columns = at.columns;
  double mine = std::ceil(columns / ranks);
  double columns_elsewhere = columns;
  double mine_elsewhere = mine;
  if (!whole) {
    double carried = 0;
    for (const std::vector<int>& host : at.topology->hosts)
      carried += std::ceil(static_cast<double>(host.size()) / ranks);
    columns = at.size / hosts;
    mine = carried / hosts;
    columns_elsewhere = (at.size - ranks) / (hosts - 1);
    mine_elsewhere = (carried - 1) / (hosts - 1);
  }
  return {.hosts = hosts,
          .columns = columns,
          .mine = mine,
          .others = ranks > 1 ? columns - mine : 0,
          .columns_elsewhere = columns_elsewhere,
          .mine_elsewhere = mine_elsewhere,
          .range = whole ? question.bytes / columns / hosts : question.bytes,
          .reduced = question.kind != Collective::kAllgather,
          .gathered = question.kind != Collective::kReduceScatter};
}

TransferCost::TransferCost(const CostQuery& question, double range_bytes)
    : costs_(question.costs),
      bytes_(range_bytes),
      segments_(std::max(1.0, std::ceil(range_bytes / question.segment_bytes))),
      segment_(range_bytes / segments_) {}

void TransferCost::use(bool inside) {
  const LinkCosts& costs = link(inside);
  way_.end = std::max(way_.end, end(inside));
  way_.latency = std::max(way_.latency, nanoseconds(costs.latency));
  way_.line = std::max(way_.line, time_on(costs, segment_, 1));
}

TransferCost& TransferCost::send(bool inside, double ranges, double copied) {
  if (ranges <= 0) return *this;
  use(inside);
  const LinkCosts& costs = link(inside);
  const double message = nanoseconds(costs.per_message);
  all_.out += ranges * segments_ * message + time_at(copied * bytes_, costs.copied_per_second);
  first_.out += ranges * message + time_at(copied * segment_, costs.copied_per_second);
  return *this;
}

TransferCost& TransferCost::receive(bool inside, double ranges) {
  if (ranges <= 0) return *this;
  use(inside);
  const LinkCosts& costs = link(inside);
  const double message = nanoseconds(costs.per_message);
  all_.in += ranges * (segments_ * message + time_at(bytes_, costs.copied_per_second));
  first_.in += ranges * (message + time_at(segment_, costs.copied_per_second));
  return *this;
}

TransferCost& TransferCost::cross(double ranges) {
  if (ranges <= 0) return *this;
  all_.line += ranges * time_on(costs_.between, bytes_, segments_);
  first_.line += ranges * time_on(costs_.between, segment_, 1);
  return *this;
}

TransferCost& TransferCost::share(double ranges) {
  if (ranges <= 0) return *this;
  all_.memory += ranges * time_on(costs_.inside, bytes_, segments_);
  first_.memory += ranges * time_on(costs_.inside, segment_, 1);
  return *this;
}

TransferCost& TransferCost::one_sided() {
  way_.one_sided = true;
  return *this;
}

double TransferCost::alone() const { return std::max(time(all_, way_), first()); }

double TransferCost::end(bool inside) const {
  const LinkCosts& costs = link(inside);
  return nanoseconds(costs.per_message) + time_at(segment_, costs.copied_per_second);
}

double TransferCost::line(bool inside) const { return time_on(link(inside), segment_, 1); }

double TransferCost::hop(bool inside, double copied) const {
  const LinkCosts& costs = link(inside);
  return 2 * end(inside) - (1 - copied) * time_at(segment_, costs.copied_per_second) +
         nanoseconds(costs.latency) + time_on(costs, segment_, 1);
}

// Returns the time at the busiest place. The core sends, waits for the first arrival if that comes
// later, and receives. If a rank both sends and receives, the first segment arrives while it is
// still sending. On a line, one segment must also pass a core before and after it.
double TransferCost::time(const Load& load, const PathTime& way) {
  const double on_the_way = way.end + way.line + way.latency;
  const double core =
      way.one_sided ? load.out + load.in + on_the_way : std::max(load.out, on_the_way) + load.in;
  const double line = std::max(load.line, load.memory) + 2 * way.end + way.latency;
  return std::max(core, line);
}

double TransferCost::first() const { return time(first_, way_); }

double TransferCost::round() const {
  return std::max({first_.out + way_.line + way_.latency + first_.in, first_.line, first_.memory});
}

OpCost& OpCost::load(const TransferCost& ranges, double times) {
  if (times <= 0) return *this;
  all_.out += times * ranges.all_.out;
  all_.in += times * ranges.all_.in;
  all_.line += times * ranges.all_.line;
  all_.memory += times * ranges.all_.memory;
  way_.end = std::max(way_.end, ranges.way_.end);
  way_.line = std::max(way_.line, ranges.way_.line);
  way_.latency = std::max(way_.latency, ranges.way_.latency);
  way_.one_sided = ranges.way_.one_sided;
  return *this;
}

OpCost& OpCost::then(const TransferCost& ranges, double rounds) {
  if (rounds <= 0) return *this;
  return load(ranges, rounds).chain(ranges.first() + (rounds - 1) * ranges.round());
}

OpCost& OpCost::chain(double nanoseconds) {
  first_ += nanoseconds;
  return *this;
}

OpCost& OpCost::after(double nanoseconds) {
  passed_ += nanoseconds;
  return *this;
}

OpCost& OpCost::add(double bytes) {
  added_ += kAddition * time_at(bytes, costs_.inside.copied_per_second);
  return *this;
}

Duration OpCost::total() const {
  // A few centuries, so that sums of durations do not overflow.
  constexpr double kMost = 1e18;
  const double queued = TransferCost::time(all_, way_) + passed_;
  return Duration(std::llround(std::min(std::max(first_, queued) + added_, kMost)));
}

}  // namespace ringdist
