// A collective is a schedule: a short list of steps, a pure function of (rank, size, counts), with
// a length of the order of the number of ranks. No I/O, no threads, no bytes: the executor cuts
// ranges into segments, pipelines them and moves them.
//
// Rules that the symbolic checker enforces for sizes 1..64:
//  - Messages of one ordered pair of ranks match in schedule order: the i-th send of `a` to `b`
//  meets
//    the i-th receive of `b` from `a` (an *edge*, numbered i), and both name the same count.
//  - Order on one rank is by data dependence on ranges, not by position: a step waits only for the
//    earlier steps that wrote what it reads, or use what it writes - and a send that takes its turn
//    for the steps that it follows (Step::follows).
//  - It ends over channels of capacity one, FIFO per ordered pair.
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

enum class StepKind : uint8_t {
  kSend,    // range -> every peer in `to`
  kRecv,    // from `from` -> range
  kReduce,  // range = op over `sources` in their order (this fixes the bits)
  kRelay,   // from `from` -> range, and the bytes as they came on to every peer in `to`
  kCopy,    // local: sources[0].range -> range
};

// What travels on an edge; the engine maps it to a codec.
enum class EdgeKind : uint8_t {
  kContribution,  // one rank's input, or a partial sum of several
  kResult,        // final values, sent by the rank that owns them
  kRelay,         // final values that another rank encoded
  kIntraHost,     // a contribution to a sum of the own host, which leaves it in other words
};

std::string_view edge_kind_name(EdgeKind edge_kind);  // for people

// One operand of a reduce: what arrives from `peer`, or (peer < 0) the local `range`.
struct Source {
  int peer = -1;
  Range range;
  EdgeKind edge_kind = EdgeKind::kContribution;  // of what arrives
};

struct Step {
  StepKind kind = StepKind::kSend;
  EdgeKind edge_kind = EdgeKind::kContribution;  // of what it sends or receives
  Range range;
  int from = -1;
  std::vector<int> to;
  std::vector<Source> sources;
  bool finish = false;  // a reduce whose result is final: AVG divides here, once
  // Of a send: earlier sends and receives that must be complete first, though it needs nothing of
  // theirs. So ranks that all have much for all others take turns.
  std::vector<int> follows = {};

  static Step send(Range range, std::vector<int> to, EdgeKind edge_kind);
  static Step recv(Range range, int from, EdgeKind edge_kind);
  static Step reduce(Range range, std::vector<Source> sources, bool finish);
  static Step relay(Range range, int from, std::vector<int> to);
  static Step copy(Range range, Range source);
};

struct Schedule {
  std::vector<Step> steps;
  int64_t scratch_count = 0;  // elements of pooled scratch that the steps use
};

// The numbers go over the wire in fingerprints: append only.
enum class Collective : uint8_t {
  kAllreduce = 0,
  kBroadcast,
  kAllgather,      // input: count, output: size * count
  kReduceScatter,  // input: size * count, output: count
  kBarrier,
  kReduce,        // the root's output is the result; the others' outputs are only read
  kGather,        // input: count, the root's output: size * count
  kScatter,       // the root's input: size * count, output: count
  kAlltoall,      // input and output: size * count, or as input_parts and output_parts say
  kPointToPoint,  // a send or a receive: no algorithm has it
};

std::string_view collective_name(Collective kind);  // torch's name: "all_reduce"
bool reduces(Collective kind);

// All that a schedule may depend on. Every rank of a group has the same but for `rank` and an
// alltoall's parts.
struct Shape {
  int rank = 0;
  int size = 1;
  int root = 0;
  // Elements: of the tensor (allreduce, broadcast, reduce), of one part (the others).
  int64_t count = 0;
  // Parts that are not all of `count` elements, one entry per rank: of an allgather's output and a
  // reduce-scatter's input, known alike to all ranks; of an alltoall's input and output, where only
  // those two ranks know alike what one sends the other. Empty: parts of `count`, which is not read
  // where parts are given.
  std::vector<int64_t> input_parts = {};
  std::vector<int64_t> output_parts = {};
  // Allreduce: shard i is [shards[i], shards[i + 1]), as many as the algorithm has (shard_count());
  // empty: even_shards(). Other collectives ignore it.
  std::vector<int64_t> shards = {};
  // Of all ranks; empty: they share one host.
  Topology topology = {};
  // Allreduce, broadcast and reduce work in place on kOutput. The others read kInput (and never
  // write it) and write kOutput.
};

// `shards` of a count, cut as evenly as elements allow; the first (count mod shards) are one
// longer.
std::vector<int64_t> even_shards(int64_t count, int shards);
// Those of an allreduce of this shape, of which there are so many.
std::vector<int64_t> shards_of(const Shape& shape, int shards);
// The parts of the input or the output, one after another: part i is [bounds[i], bounds[i + 1]).
std::vector<int64_t> input_bounds(const Shape& shape);
std::vector<int64_t> output_bounds(const Shape& shape);

// When the planner takes an algorithm for a collective, besides where it costs least.
struct Preference {
  // Where others cost no less.
  bool best = false;
  // The same, and before those, where the group spans hosts.
  bool best_between_hosts = false;
  // The same, where several ranks share one of those hosts.
  bool best_between_shared_hosts = false;
  // The same of ops whose codecs lose something, where several ranks share a host.
  bool best_for_codecs_between_hosts = false;
  // A rank has messages for, or from, all others: a connection to each. In large groups only where
  // nothing else serves, or a codec wants it.
  bool for_few = false;
};

// What an algorithm has for a collective.
struct CollectiveImpl {
  Collective kind;
  Schedule (*build)(const Shape& shape);
  // No step of such a schedule moves more elements, of `count` as in Shape and parts of that size,
  // and so many even shards. By arithmetic, because every op is planned, while its schedule is
  // built once; a test holds it against the schedules.
  int64_t (*longest)(int64_t count, int shards);
  Preference preference = {};
};

struct Algorithm {
  std::string_view name;
  std::string_view description;
  bool rank_ordered;  // reduces in rank order: an element's bits do not depend on where it lies
  // Its edges may have codecs: no rank uses a value of its own that others get encoded.
  bool serves_codecs = true;
  std::span<const CollectiveImpl> impls;
  // By hosts (host_grid.h), and meant for groups that span hosts: sums begin inside them, and an
  // allreduce has a shard for each column of each host. Else it has one for each rank.
  bool hierarchical = false;
  // Never by itself in large groups: all ranks' whole tensors come to each at once.
  bool only_for_few = false;
  // What such an op takes, about: algorithm/cost.h.
  Duration (*cost)(const CostQuery& question);

  const CollectiveImpl* find(Collective kind) const;  // nullptr: it has none
  bool supports(Collective kind) const { return find(kind) != nullptr; }
  std::vector<Collective> collectives() const;
  // Of one that it supports.
  const CollectiveImpl& impl(Collective kind) const;
  Schedule build(Collective kind, const Shape& shape) const { return impl(kind).build(shape); }
  // Of an allreduce.
  int shard_count(int size, const Topology& topology) const;
  // It has edges that are not encoded, whatever codec is asked for (EdgeKind::kInside).
  bool uncompressed_intra_host(const Topology& topology) const {
    return hierarchical && topology.hosts.size() > 1;
  }
};

// One row per algorithm; the order is the order of preference where several fit.
std::span<const Algorithm> algorithms();
const Algorithm* find_algorithm(std::string_view name);
std::string algorithm_names();  // "ring, direct, ...", for messages
// Success, or that Config::algorithm names none of them.
Error check_forced_algorithm(const Config& config);

}  // namespace ringdist
