// Cost formulas of the algorithms. A formula predicts the duration of an op without building or
// simulating a schedule, so that every op can be planned by it.
//
// The formulas extend two models. A message of n bytes takes alpha + beta n: R. W. Hockney, "The
// communication challenge for MPP", Parallel Computing 20(3), 1994. Collectives follow R. Thakur,
// R. Rabenseifner, W. Gropp, Int. J. of High Performance Computing Applications 19(1), 2005. Added
// is a term for each place where messages queue: the busiest rank's core, a host's line, its
// memory. tests/cpp/simulate/cost_test.cc compares the formulas with simulations of the schedules.
//
// Pure: every rank does the same operations in the same order and gets the same result. Any thread.
// Costs are in nanoseconds unless they are a Duration.
#pragma once

#include <cstdint>

#include "algorithm/schedule.h"
#include "base/network_costs.h"

namespace ringdist {

// Summary of a topology: the figures that formulas need.
struct CostLayout {
  // Arguments as in Shape. If the topology has several hosts, it must outlive this object.
  CostLayout(int size, const Topology& topology, int root = 0);

  // Returns true if the group spans several hosts; only then is `topology` set.
  bool spans() const { return hosts > 1; }
  // Returns the number of ranks outside of a host with that many ranks.
  int elsewhere(int ranks_here) const { return size - ranks_here; }
  // Returns true if both ranks are on one host.
  bool same_host(int one, int other) const { return !spans() || topology->same_host(one, other); }

  int size = 1;
  int root = 0;
  int hosts = 1;
  int most = 1;       // ranks of the largest host
  int least = 1;      // ranks of the smallest host
  int columns = 1;    // columns of a hierarchical allreduce
  int at_root = 1;    // ranks on the root's host
  int crossings = 0;  // ranks followed by a rank of another host
  int leaving = 0;    // the most of these ranks on one host
  double crowd = 0;   // pairs of a rank here and one elsewhere, for the host with most
  const Topology* topology = nullptr;  // null if all ranks share one host
};

// The properties of an op that its cost depends on. A formula gets only collectives that its
// algorithm has. Codecs are not considered.
struct CostQuery {
  Collective kind;
  // Bytes of the tensor for collectives that are in place, and of one part for the others.
  double bytes;
  CostLayout layout;
  NetworkCosts costs;
  // The maximum size of a message, at least one element.
  double segment_bytes;
  double element_bytes = 4;
};

// The cost of the messages of ranges of one length, which are cut into segments. It sums up the
// time at each place where messages queue, in nanoseconds, for all segments and for the first ones
// alone. The methods that add a load return the object itself; counts of 0 or less add nothing.
class TransferCost {
 public:
  // Starts with no load; `range_bytes` is the length of each range. The query must outlive this
  // object.
  TransferCost(const CostQuery& question, double range_bytes);

  // Adds `ranges` that the busiest rank sends, inside its host or to other hosts. `copied` is the
  // number of ranges that must be copied for sending.
  TransferCost& send(bool inside, double ranges, double copied);
  TransferCost& send(bool inside, double ranges) { return send(inside, ranges, ranges); }
  // Adds ranges that the busiest rank receives; each is read once.
  TransferCost& receive(bool inside, double ranges);
  // Adds ranges that the busiest line carries in one direction.
  TransferCost& cross(double ranges);
  // Adds ranges that a host's memory carries, for all ranks of the host together.
  TransferCost& share(double ranges);

  // Declares that the busiest rank only sends or only receives, so that the other ends are idle
  // ranks.
  TransferCost& one_sided();

  // Returns the time from the call until the last of the first segments has arrived.
  double first() const;
  // Returns the same for one of many rounds in which every rank waits for another.
  double round() const;
  // Returns the time for all segments, from the call until the last has arrived.
  double alone() const;
  // Returns the time of one segment from rank to rank without other traffic. `copied` is the
  // fraction of it that the sender copies.
  double hop(bool inside, double copied = 1) const;
  // Return the time of one segment at a rank, and on the line.
  double end(bool inside) const;
  double line(bool inside) const;

 private:
  friend class OpCost;
  // The time that the load takes at each place, in nanoseconds.
  struct Load {
    double out = 0;     // the busiest rank's core, for sending
    double in = 0;      // the same core, for receiving
    double line = 0;    // the busiest line between hosts, in one direction
    double memory = 0;  // the memory of the busiest host
  };
  // The time of one segment at each stage, over the slower kind of links in use.
  struct PathTime {
    double end = 0;  // the core of the sender or the receiver
    double line = 0;
    double latency = 0;
    bool one_sided = false;  // see TransferCost::one_sided()
  };
  const LinkCosts& link(bool inside) const { return inside ? costs_.inside : costs_.between; }
  void use(bool inside);
  static double time(const Load& load, const PathTime& way);

  const NetworkCosts& costs_;
  const double bytes_;     // bytes of a range
  const double segments_;  // segments of a range
  const double segment_;   // bytes of a segment
  Load all_;
  Load first_;
  PathTime way_;
};

// The cost of an op as a pipeline of phases, segment by segment. An op takes as long as its first
// segments need through all phases, or as the busiest place needs for all segments, whichever is
// longer.
class OpCost {
 public:
  // The query must outlive this object.
  explicit OpCost(const CostQuery& question) : costs_(question.costs) {}

  // Adds `rounds` rounds of these transfers by the same ranks, each of which waits for the round
  // before.
  OpCost& then(const TransferCost& ranges, double rounds = 1);
  // Adds the load of the transfers `times` times, without waiting for them. chain() then adds the
  // time of the first segments. Of several calls, the last decides about one_sided().
  OpCost& load(const TransferCost& ranges, double times = 1);
  // Adds to the path of the first segments.
  OpCost& chain(double nanoseconds);
  // Adds the time that the last segment takes behind the busiest place, where other ranks only pass
  // it on.
  OpCost& after(double nanoseconds);
  // Adds the time to both paths, because every segment takes it.
  OpCost& pass_on(double nanoseconds) { return chain(nanoseconds).after(nanoseconds); }
  // Adds the time in which the busiest rank adds so many bytes to others. Arriving data is read in
  // place. Its reading has been counted as a copy, and this is the rest.
  OpCost& add(double bytes);

  // Returns the predicted duration of the op: the longer of the two paths, and the additions.
  Duration total() const;

 private:
  const NetworkCosts& costs_;
  double first_ = 0;   // path of the first segments
  double passed_ = 0;  // time behind the busiest place, see after()
  double added_ = 0;   // time of additions
  TransferCost::Load all_;
  TransferCost::PathTime way_;
};

// The load of the busiest rank on a host of so many ranks, for a hierarchical op (host_grid.h).
// Allreduce has a range for each column of each host. The other collectives have parts only for
// existing ranks, so the numbers are averages per host.
struct HierarchicalLoad {
  double hosts;
  double columns;  // ranges of a host
  double mine;     // ranges of it that this rank carries as leader
  double others;   // ranges of it that its other ranks carry
  // The same for ranges of other hosts only.
  double columns_elsewhere;
  double mine_elsewhere;
  double range;   // bytes of a range
  bool reduced;   // the op has a reduction
  bool gathered;  // the op distributes results to all
};
// Computes the load for a host of `ranks` ranks. The group must span hosts.
HierarchicalLoad hierarchical_load(const CostQuery& question, double ranks);

// The fraction of a range that a send inside a host still copies if a reduce or a relay has just
// stored the range.
inline constexpr double kStoredCopy = 0.5;

// An alltoall's part for another host takes turns if it has at least this many elements
// (direct.cc).
inline constexpr int64_t kTurnCount = 32 * 1024;

// Costs of algorithms that define them outside of their anonymous namespace.
Duration ring_cost(const CostQuery& question);
Duration direct_cost(const CostQuery& question);
Duration hierarchical_cost(const CostQuery& question);
Duration hierarchical_direct_cost(const CostQuery& question);

}  // namespace ringdist
