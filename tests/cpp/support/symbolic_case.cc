// Input and expected output of each rank of a collective, computed independently of the product.
#include "support/symbolic.h"

namespace ringdist::symbolic {

int64_t Case::moved(int from, int to) const { return parts.empty() ? count : parts[from][to]; }

int64_t Case::sent_before(int from, int to) const {
  int64_t out = 0;
  for (int peer = 0; peer < to; ++peer) out += moved(from, peer);
  return out;
}

Shape shape_of(const Case& what, int rank) {
  Shape out{rank, what.size, what.root, what.count};
  if (!what.hosts.empty()) out.topology = Topology::from_hosts(what.hosts, what.size);
  if (what.parts.empty()) return out;
  const bool uneven_input = what.kind != Collective::kAllgather;
  const bool uneven_output = what.kind != Collective::kReduceScatter;
  for (int peer = 0; peer < what.size; ++peer) {
    if (uneven_input) out.input_parts.push_back(what.moved(rank, peer));
    if (uneven_output) out.output_parts.push_back(what.moved(peer, rank));
  }
  return out;
}

std::vector<Schedule> build_all(const Algorithm& algorithm, const Case& what) {
  std::vector<Schedule> out;
  for (int rank = 0; rank < what.size; ++rank)
    out.push_back(algorithm.build(what.kind, shape_of(what, rank)));
  return out;
}

Counts counts_of(const Case& what, int rank) {
  const int64_t own = what.moved(rank, rank);
  const int64_t sent = what.sent_before(rank, what.size);
  int64_t received = 0;
  for (int peer = 0; peer < what.size; ++peer) received += what.moved(peer, rank);
  switch (what.kind) {
    case Collective::kAllreduce:
    case Collective::kBroadcast:
    case Collective::kReduce:
      return {0, what.count};
    case Collective::kAllgather:
      return {own, received};
    case Collective::kReduceScatter:
      return {sent, own};
    case Collective::kGather:
      return {own, rank == what.root ? received : 0};
    case Collective::kScatter:
      return {rank == what.root ? sent : 0, own};
    case Collective::kAlltoall:
      return {sent, received};
    case Collective::kBarrier:
    case Collective::kPointToPoint:
      break;
  }
  return {};
}

Origin origin_of(const Case& what, int rank, int64_t element) {
  switch (what.kind) {
    case Collective::kBroadcast:
      return {what.root, element};
    case Collective::kScatter:
      return {what.root, what.sent_before(what.root, rank) + element};
    case Collective::kAllgather:
    case Collective::kGather:
    case Collective::kAlltoall: {
      int from = 0;
      while (element >= what.moved(from, rank)) element -= what.moved(from++, rank);
      if (what.kind == Collective::kAlltoall) element += what.sent_before(from, rank);
      return {from, element};
    }
    default:
      return {rank, element};
  }
}

}  // namespace ringdist::symbolic
