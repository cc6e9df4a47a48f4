#include "rendezvous/compare_rank_infos.h"

#include "base/describe.h"

namespace ringdist {
namespace {

Error compare(const RankInfo& mine, int rank, const RankInfo& theirs, int peer) {
  const auto differ = [&](const std::string& what, const std::string& a, const std::string& b) {
    return Error(ErrorKind::kMismatch, "ranks cannot form a group: rank " + std::to_string(rank) +
                                           " has " + what + " " + a + ", " +
                                           describe_rank(peer, theirs.where()) + " has " + b)
        .blame(peer);
  };
  if (mine.wire_version != theirs.wire_version)
    return differ("wire version", std::to_string(mine.wire_version),
                  std::to_string(theirs.wire_version));
  if (mine.size != theirs.size)
    return differ("group size", std::to_string(mine.size), std::to_string(theirs.size));
  if (mine.options_hash != theirs.options_hash)
    return differ("options", mine.options, theirs.options);
  return {};
}

// Rank 0's count for all. All ranks find the same, so that each says why.
Error compare_costs(const std::vector<RankInfo>& entries) {
  const RankInfo& first = entries[0];
  for (size_t rank = 1; rank < entries.size(); ++rank) {
    const RankInfo& other = entries[rank];
    if (other.costs.file.empty() || other.costs.constants == first.costs.constants) continue;
    return Error(ErrorKind::kMismatch,
                 "ranks cannot form a group: " + describe_rank(0, first.where()) + " plans by " +
                     first.costs.describe() + ", " +
                     describe_rank(static_cast<int>(rank), other.where()) + " by " +
                     other.costs.describe() + ", whose " +
                     describe_difference(first.costs.constants, other.costs.constants) +
                     "; rank 0's count for all: give RINGDIST_COSTS a file with the same "
                     "constants, or none but on rank 0")
        .blame(static_cast<int>(rank));
  }
  return {};
}

}  // namespace

Error compare_rank_infos(const std::vector<RankInfo>& entries, int rank) {
  for (size_t peer = 0; peer < entries.size(); ++peer)
    if (Error error = compare(entries[static_cast<size_t>(rank)], rank, entries[peer],
                              static_cast<int>(peer)))
      return error;
  return compare_costs(entries);
}

}  // namespace ringdist
