#include "simulate/rank_symmetry.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <vector>

namespace ringdist {
namespace {

// Moves a rank by `by` on the circle of ranks. Negative numbers stand for no rank and stay.
int shifted(int rank, int by, int size) { return rank < 0 ? rank : (rank + by) % size; }

// Returns true if the ranges are in one buffer and their counts differ by at most one, as shards
// do.
bool same_count(const Range& a, const Range& b) {
  return a.buffer == b.buffer && std::abs(a.count - b.count) <= 1;
}

// The peers are sorted, because a reduce lists its sources in rank order, which begins elsewhere
// for the other rank.
std::vector<int> peers_of(const Step& step, int by, int size) {
  std::vector<int> out;
  for (const Source& source : step.sources) out.push_back(shifted(source.peer, by, size));
  std::ranges::sort(out);
  return out;
}

// Returns true if moving all ranks by `by` maps hosts to hosts, one to one.
bool same_layout(const Topology& topology, int by) {
  const auto size = static_cast<int>(topology.host_of.size());
  std::vector<int> other(topology.hosts.size(), -1);  // the host that takes the place of each
  for (int rank = 0; rank < size; ++rank) {
    int& host = other[static_cast<size_t>(topology.host_of[static_cast<size_t>(rank)])];
    const int there = topology.host_of[static_cast<size_t>(shifted(rank, by, size))];
    if (host >= 0 && host != there) return false;
    host = there;
  }
  std::ranges::sort(other);
  return std::ranges::adjacent_find(other) == other.end();
}

// Returns true if the first `ranks` ranks share no host with the others.
bool has_whole_hosts(const Topology& topology, int ranks) {
  return std::ranges::all_of(topology.hosts, [ranks](const std::vector<int>& host) {
    const auto here = std::ranges::count_if(host, [ranks](int rank) { return rank < ranks; });
    return here == 0 || static_cast<size_t>(here) == host.size();
  });
}

Schedule schedule_of(const Algorithm& algorithm, Collective kind, Shape shape, int rank) {
  shape.rank = shifted(rank, 0, shape.size);
  return algorithm.build(kind, shape);
}

// Compares the schedules of the ranks that symmetry_period() lists. The root is among them, because
// it is the most likely exception.
bool same_schedules(const Algorithm& algorithm, Collective kind, const Shape& shape, int by) {
  const int size = shape.size;
  std::vector<int> looked_at{shape.root};
  for (int rank = 0; rank < by; ++rank) looked_at.push_back(rank);
  for (const int rank : looked_at) {
    const Schedule one = schedule_of(algorithm, kind, shape, rank);
    const int half = size / 2 / by * by;
    for (const int further : {by, half, size - by}) {
      const Schedule other = schedule_of(algorithm, kind, shape, rank + further);
      if (!are_symmetric(one, other, further, size)) return false;
    }
  }
  return true;
}

}  // namespace

bool are_symmetric(const Schedule& schedule, const Schedule& further, int by, int size) {
  const auto same = [by, size](const Step& a, const Step& b) {
    if (a.kind != b.kind || !same_count(a.range, b.range) || a.to.size() != b.to.size() ||
        a.sources.size() != b.sources.size() || a.follows != b.follows ||
        shifted(a.from, by, size) != b.from)
      return false;
    for (size_t i = 0; i < a.to.size(); ++i)
      if (shifted(a.to[i], by, size) != b.to[i]) return false;
    return peers_of(a, by, size) == peers_of(b, 0, size);
  };
  return std::ranges::equal(schedule.steps, further.steps, same);
}

int symmetry_period(const Algorithm& algorithm, Collective kind, const Shape& shape,
                    const Topology& topology, bool whole_hosts) {
  Shape laid_out = shape;
  laid_out.topology = topology;
  for (int by = 1; 2 * by <= shape.size; ++by)
    if (shape.size % by == 0 && same_layout(topology, by) &&
        (!whole_hosts || has_whole_hosts(topology, by)) &&
        same_schedules(algorithm, kind, laid_out, by))
      return by;
  return shape.size;
}

}  // namespace ringdist
