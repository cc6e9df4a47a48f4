// What an op costs by an algorithm, by a closed formula: no schedule is built and none is walked,
// so that every op can be planned by it. Of the kind of R. W. Hockney: "The communication challenge
// for MPP", Parallel Computing 20(3), 1994 - a message takes alpha + beta n - and, for collectives,
// of R. Thakur, R. Rabenseifner, W. Gropp, Int. J. of High Performance Computing Applications
// 19(1), 2005; with a term for each place where messages queue: the busiest rank's core, a host's
// line, its memory. tests/cpp/plan/cost_test.cc holds it against a walk of the schedules.
//
// Pure: the same operations in the same order on every rank. Any thread.
#pragma once

#include <cstdint>

#include "algorithm/schedule.h"
#include "base/network_costs.h"

namespace ringdist {

// A layout in the figures that formulas need.
struct CostLayout {
  // As in Shape. The topology must live as long, where it has several hosts.
  CostLayout(int size, const Topology& topology, int root = 0);

  bool spans() const { return hosts > 1; }
  int elsewhere(int ranks_here) const { return size - ranks_here; }
  bool same_host(int one, int other) const { return !spans() || topology->same_host(one, other); }

  int size = 1;
  int root = 0;
  int hosts = 1;
  int most = 1;       // ranks of a host
  int least = 1;      // ranks of a host
  int columns = 1;    // of an allreduce by hosts
  int at_root = 1;    // ranks of the root's host
  int crossings = 0;  // ranks whose next rank is on another host
  int leaving = 0;    // of those, on the host that has most
  double crowd = 0;   // pairs of ranks here and elsewhere, of the host that has most
  const Topology* topology = nullptr;  // where it spans hosts
};

// An op, as far as costs depend on it.
struct CostQuery {
  Collective kind;
  double bytes;  // of the tensor (allreduce, broadcast, reduce), of one part (the others)
  CostLayout layout;
  NetworkCosts costs;
  double segment_bytes;
  double element_bytes = 4;
};

// Messages of ranges of one length, cut into segments: what they take at each place where they
// queue, in nanoseconds, of all segments and of first ones alone.
class TransferCost {
 public:
  TransferCost(const CostQuery& question, double range_bytes);

  // What the busiest rank sends of them, inside its host or beyond; `copied`: so many have to be
  // copied to be sent.
  TransferCost& send(bool inside, double ranges, double copied);
  TransferCost& send(bool inside, double ranges) { return send(inside, ranges, ranges); }
  TransferCost& receive(bool inside, double ranges);
  // What the busiest line carries one way.
  TransferCost& cross(double ranges);
  // What a host's memory carries.
  TransferCost& share(double ranges);

  // The busiest rank only sends, or only receives: its other ends are elsewhere, and idle.
  TransferCost& one_sided();

  // From the call until the last of the first segments is there.
  double first() const;
  // The same of each of many rounds in which every rank waits for another.
  double round() const;
  // All of these, segment after segment, from the call until the last is there.
  double alone() const;
  // One segment's way where nobody else is.
  double hop(bool inside, double copied = 1) const;
  // Of one, at a rank; and on the line.
  double end(bool inside) const;
  double line(bool inside) const;

 private:
  friend class OpCost;
  struct Load {
    double out = 0;  // of the busiest rank's core
    double in = 0;
    double line = 0;
    double memory = 0;
  };
  // Of one segment, by the slower of the links that are used.
  struct PathTime {
    double end = 0;
    double line = 0;
    double latency = 0;
    bool one_sided = false;
  };
  const LinkCosts& link(bool inside) const { return inside ? costs_.inside : costs_.between; }
  void use(bool inside);
  static double time(const Load& load, const PathTime& way);

  const NetworkCosts& costs_;
  const double bytes_;     // of a range
  const double segments_;  // of a range
  const double segment_;   // bytes of the first
  Load all_;
  Load first_;
  PathTime way_;
};

// What follows each other, segment by segment: an op takes as long as its first segments, or as the
// busiest place, whichever is more.
class OpCost {
 public:
  explicit OpCost(const CostQuery& question) : costs_(question.costs) {}

  // The same ranks do so much more; in so many rounds of it.
  OpCost& then(const TransferCost& ranges, double rounds = 1);
  // The same without waiting for it: chain() says how the first segments go.
  OpCost& load(const TransferCost& ranges, double times = 1);
  OpCost& chain(double nanoseconds);
  // From the busiest place on others pass on what comes: of the last segment.
  OpCost& after(double nanoseconds);
  // The same of any segment.
  OpCost& pass_on(double nanoseconds) { return chain(nanoseconds).after(nanoseconds); }
  // The busiest rank adds so many bytes to others. What comes is read where it lies: its copy has
  // been counted, and this is the rest.
  OpCost& add(double bytes);

  Duration total() const;

 private:
  const NetworkCosts& costs_;
  double first_ = 0;
  double passed_ = 0;
  double added_ = 0;
  TransferCost::Load all_;
  TransferCost::PathTime way_;
};

// What the busiest rank of a host of so many ranks has to do with an op by hosts (host_grid.h).
// There is a range for each column of each host, but parts only for ranks that there are: per host,
// on average.
struct HierarchicalLoad {
  double hosts;
  double columns;  // ranges of a host
  double mine;     // of those, what this rank carries
  double others;   // what others of its host do
  // The same of other hosts alone.
  double columns_elsewhere;
  double mine_elsewhere;
  double range;  // bytes
  bool reduced;
  bool gathered;
};
HierarchicalLoad hierarchical_load(const CostQuery& question, double ranks);

// What a send inside a host copies of what a reduce or a relay has just stored.
inline constexpr double kStoredCopy = 0.5;

// An alltoall's part for another host takes its turn if it has so many elements (direct.cc).
inline constexpr int64_t kTurnCount = 32 * 1024;

// Of the algorithms whose files are too long for it.
Duration ring_cost(const CostQuery& question);
Duration direct_cost(const CostQuery& question);
Duration hierarchical_cost(const CostQuery& question);
Duration hierarchical_direct_cost(const CostQuery& question);

}  // namespace ringdist
