#include "membership/paxos/ballot_round.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>

namespace ringdist {
namespace {

// Returns the address of the next generation's store. The old store stays if all survivors reach
// it, or if none of them can serve another. Otherwise the lowest rank that can serve one provides
// it. `staying` has the promise info of the survivors, by rank, and is not empty.
std::string store_of(const std::map<int, const PromiseInfo*>& staying) {
  const auto reaches = [](const auto& one) { return one.second->reaches_store; };
  const std::string& old = staying.begin()->second->store;
  if (std::all_of(staying.begin(), staying.end(), reaches)) return old;
  const auto offers = [](const auto& one) { return !one.second->offers_store.empty(); };
  const auto first = std::find_if(staying.begin(), staying.end(), offers);
  return first == staying.end() ? old : first->second->offers_store;
}

}  // namespace

Decision compose_decision(const Voters& voters, const BallotRound& round, const RankSet& dead) {
  const auto& members = voters.members;
  Decision out;
  out.generation = voters.generation.number + 1;
  out.after = voters.generation.nonce;
  out.proposed = round.ballot;
  out.first_unfinished = std::numeric_limits<int64_t>::max();
  std::map<int, const PromiseInfo*> staying;
  std::map<ProcessId, std::string> newcomers;
  // The smallest limit of any survivor counts.
  size_t most = std::numeric_limits<size_t>::max();
  for (int rank = 0; rank < static_cast<int>(members.size()); ++rank) {
    if (dead.has(rank)) {
      out.lost.push_back({rank, LostMember::Cause::kDied});
      continue;
    }
    const auto info = round.promises.find(rank);
    if (info == round.promises.end()) {
      out.lost.push_back({rank, LostMember::Cause::kSilent});
      continue;
    }
    out.members.push_back(members[static_cast<size_t>(rank)]);
    staying.emplace(rank, &info->second);
    out.first_unfinished = std::min(out.first_unfinished, info->second.first_unfinished);
    out.needs_rendezvous |= !info->second.formed;
    if (info->second.most > 0) most = std::min<size_t>(most, info->second.most);
    for (const Newcomer& one : info->second.newcomers)
      // Several survivors may report the same newcomer; the lowest rank's entry counts.
      newcomers.emplace(one.process, one.entry);
  }
  out.survivor_count = static_cast<uint32_t>(out.members.size());
  out.store = store_of(staying);
  for (const auto& [process, entry] : newcomers) {
    if (out.rank_of(process) >= 0 || out.members.size() >= most) continue;
    out.members.push_back(process);
    out.newcomers.push_back({process, entry});
    out.needs_rendezvous = true;
  }
  return out;
}

}  // namespace ringdist
