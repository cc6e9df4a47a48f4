// Schedules of collectives. A schedule is a short list of steps: a pure function of (rank, size,
// counts), with a length of the order of the number of ranks. It does no I/O and has no threads or
// bytes. OpExecution cuts the ranges into segments, pipelines them and moves them.
//
// The symbolic checker enforces these rules for sizes 1..64:
//
//  - Messages of one ordered pair of ranks match in schedule order. The i-th send of `a` to `b`
//    meets the i-th receive of `b` from `a` (an *edge*, numbered i). Both have the same count.
//
//  - Order on one rank is by data dependence on ranges, not by position. A step waits only for the
//    earlier steps that wrote what it reads, or that use what it writes. A send that takes turns
//    also waits for the steps in Step::follows.
//
//  - The schedule ends over channels of capacity one that are FIFO per ordered pair. So it cannot
//    deadlock, however little a transport buffers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffers.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/topology.h"

namespace ringdist {

struct Config;
struct CostQuery;

// The kinds of steps. In a reduce, the order of the sources fixes the bits of the result.
enum class StepKind : uint8_t {
  kSend,    // range -> every peer in `to`
  kRecv,    // from `from` -> range
  kReduce,  // range = op over `sources` in their order
  kRelay,   // from `from` -> range, and the same bytes on to every peer in `to`
  kCopy,    // local: sources[0].range -> range
};

// The meaning of the data on an edge. The engine maps it to a codec.
enum class EdgeKind : uint8_t {
  kContribution,  // one rank's input, or a partial sum of several
  kResult,        // final values, sent by the rank that computed them
  kRelay,         // final values that another rank encoded
  kIntraHost,     // a contribution to a sum inside the host
};

std::string_view edge_kind_name(EdgeKind edge_kind);  // for messages and listings

// One operand of a reduce: the data that arrives from `peer`, or the local `range` if `peer` is
// negative.
struct Source {
  int peer = -1;
  Range range;
  EdgeKind edge_kind = EdgeKind::kContribution;  // kind of the arriving data
};

// One step of a schedule. The members that a kind uses are the arguments of the function of that
// name below.
struct Step {
  StepKind kind = StepKind::kSend;
  EdgeKind edge_kind = EdgeKind::kContribution;  // kind of the data that it sends or receives
  Range range;
  int from = -1;
  std::vector<int> to;
  std::vector<Source> sources;
  bool finish = false;  // a reduce with a final result: AVG divides here, once
  // For a send: earlier sends and receives that must be complete first, although there is no data
  // dependence. With it, ranks that all have much to send to all others take turns.
  std::vector<int> follows = {};

  // Make steps; see StepKind. All ranges of a step must have the same count.
  static Step send(Range range, std::vector<int> to, EdgeKind edge_kind);
  static Step recv(Range range, int from, EdgeKind edge_kind);
  static Step reduce(Range range, std::vector<Source> sources, bool finish);
  static Step relay(Range range, int from, std::vector<int> to);
  static Step copy(Range range, Range source);
};

// The steps of one rank for one collective. An empty list is valid: the rank has nothing to do.
struct Schedule {
  std::vector<Step> steps;
  int64_t scratch_count = 0;  // elements of pooled scratch that the steps use
};

// The collectives. Their numbers are sent in fingerprints, so only append. CollectiveTraits has the
// properties of each.
enum class Collective : uint8_t {
  kAllreduce = 0,
  kBroadcast,
  kAllgather,      // input of count, output of size * count elements
  kReduceScatter,  // input of size * count, output of count
  kBarrier,
  kReduce,        // the others' outputs are only read
  kGather,        // input of count, the root's output of size * count
  kScatter,       // the root's input of size * count, output of count
  kAlltoall,      // both of size * count, or of input_parts and output_parts
  kPointToPoint,  // a send or a receive, which no algorithm has
};

// Properties of a collective. schedule.cc has the row of each.
struct CollectiveTraits {
  std::string_view name;  // torch's name, as in "all_reduce"
  bool reduces = false;   // combines values
  bool has_root = false;
  bool in_place = false;      // works on kOutput; the others read kInput
  bool takes_joined = false;  // ranks that have joined (Horovod's join()) can take part
};

inline constexpr size_t kCollectives = 10;  // number of collectives, with kPointToPoint

// Returns true for the number of a collective. A peer may send any number.
constexpr bool is_collective(Collective kind) { return static_cast<size_t>(kind) < kCollectives; }
// Returns the row of a collective. is_collective(kind) must hold.
const CollectiveTraits& traits_of(Collective kind);
// Returns torch's name. Any number is safe.
std::string_view collective_name(Collective kind);
// Returns true for the collectives that combine values.
inline bool reduces(Collective kind) { return is_collective(kind) && traits_of(kind).reduces; }

// All inputs of a schedule. They are equal on every rank of a group, except for `rank` and the
// parts of an alltoall. Collectives that are in place work on kOutput. The others read kInput,
// never write it, and write kOutput.
struct Shape {
  int rank = 0;
  int size = 1;
  int root = 0;
  // Elements of the tensor for allreduce, broadcast and reduce, and of one part for the others.
  int64_t count = 0;
  // Sizes of parts that do not all have `count` elements, one entry per rank. In an allgather's
  // output and a reduce-scatter's input they are equal on all ranks. In an alltoall's input and
  // output, only the two ranks of a pair agree on the size between them. If empty, all parts have
  // `count` elements; otherwise `count` is not read.
  std::vector<int64_t> input_parts = {};
  std::vector<int64_t> output_parts = {};
  // For allreduce only: shard i is [shards[i], shards[i + 1]), and there are shard_count() shards.
  // If empty, even_shards() is used.
  std::vector<int64_t> shards = {};
  // The hosts of all ranks. If empty, all share one host.
  Topology topology = {};
};

// Returns the bounds of `shards` shards of `count` elements, cut as evenly as possible. The first
// (count mod shards) are one element longer.
std::vector<int64_t> even_shards(int64_t count, int shards);
// Returns the bounds of the shards of an allreduce with this shape. `shards` is
// Algorithm::shard_count(); Shape::shards must be empty or have that many.
std::vector<int64_t> shards_of(const Shape& shape, int shards);
// Return the bounds of the parts of the input or the output, one after another. Part i is
// [bounds[i], bounds[i + 1]).
std::vector<int64_t> input_bounds(const Shape& shape);
std::vector<int64_t> output_bounds(const Shape& shape);

// Rules by which the planner prefers an algorithm for a collective, besides its cost.
struct Preference {
  // Preferred where no other costs less.
  bool best = false;
  // Preferred before those of `best` if the group spans hosts.
  bool best_between_hosts = false;
  // The same if the group spans hosts and several ranks share one of them.
  bool best_between_shared_hosts = false;
  // Chosen for ops with lossy codecs if the group spans hosts and several ranks share one of them,
  // whatever the costs.
  bool best_for_codecs_between_hosts = false;
  // Each rank exchanges messages with all others, so it needs a connection to each. In large groups
  // it is used only if nothing else serves, or if a codec requires it.
  bool for_small_groups = false;
};

// An algorithm's implementation of one collective.
struct CollectiveImpl {
  Collective kind;
  // Makes the schedule of the rank that `shape` names.
  Schedule (*build)(const Shape& shape);
  // Returns a bound of the elements that one step moves, for `count` as in Shape, parts of that
  // size, and so many even shards. It is arithmetic because every op is planned, while a schedule
  // is built once. A test compares it with the schedules.
  int64_t (*longest)(int64_t count, int shards);
  Preference preference = {};
};

// A row of the algorithm registry.
struct Algorithm {
  std::string_view name;
  std::string_view description;
  bool rank_ordered;  // reduces in rank order: bits do not depend on an element's place
  // Edges may have codecs. This requires that no rank uses a value of its own that others receive
  // encoded.
  bool serves_codecs = true;
  std::span<const CollectiveImpl> impls;
  // Works by hosts (host_grid.h) and serves groups that span hosts. Sums begin inside hosts, and an
  // allreduce has a shard for each column of each host. Other algorithms have one shard for each
  // rank.
  bool hierarchical = false;
  // Is never chosen automatically in large groups, because the whole tensors of all ranks arrive at
  // each rank at once.
  bool only_for_small_groups = false;
  // Predicts the duration of an op; see algorithm/cost.h.
  Duration (*cost)(const CostQuery& question);

  const CollectiveImpl* find(Collective kind) const;  // null if it is not implemented
  bool supports(Collective kind) const { return find(kind) != nullptr; }
  std::vector<Collective> collectives() const;
  // Returns the implementation of a supported collective; an unsupported one fails a check.
  const CollectiveImpl& impl(Collective kind) const;
  Schedule build(Collective kind, const Shape& shape) const { return impl(kind).build(shape); }
  // Returns the number of shards of an allreduce in a group of `size`. An empty topology means one
  // host.
  int shard_count(int size, const Topology& topology) const;
  // Returns true if some edges are not encoded whatever codec is requested (EdgeKind::kIntraHost).
  bool uncompressed_intra_host(const Topology& topology) const {
    return hierarchical && topology.hosts.size() > 1;
  }
};

// Returns the registry, one row per algorithm. The order of rows is the order of preference where
// several fit.
std::span<const Algorithm> algorithms();
// Returns the algorithm of that name, or null. Rows live as long as the process.
const Algorithm* find_algorithm(std::string_view name);
std::string algorithm_names();  // "ring, direct, ...", for messages
// Returns success if Config::algorithm is empty or names an algorithm, otherwise an error that
// lists the names.
Error check_forced_algorithm(const Config& config);

}  // namespace ringdist
