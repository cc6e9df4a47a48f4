#include "engine/membership/generation_history.h"

#include <algorithm>

#include "base/check.h"
#include "base/describe.h"
#include "engine/bootstrap/group_bootstrap.h"

namespace ringdist {

std::string GenerationHistory::Change::describe(const std::string& group) const {
  std::vector<int> survivors;
  for (uint32_t rank = 0; rank < decision.survivor_count; ++rank)
    survivors.push_back(rank_of(decision.members[rank], before));
  std::string out = "generation " + std::to_string(decision.generation) + " of group '" + group +
                    "': " + format_ranks(survivors) + " of " + std::to_string(before.size()) +
                    " go on";
  for (const LostMember& lost : decision.lost)
    out += "; " + describe_rank(lost.rank, where.at(lost.rank)) +
           (lost.cause == LostMember::Cause::kDied ? " died" : " was silent");
  if (!decision.newcomers.empty())
    out += "; newcomers: " + std::to_string(decision.newcomers.size());
  return out;
}

ShrinkResult GenerationHistory::report(uint32_t after, const std::vector<ProcessId>& members,
                                       const std::string& store) const {
  const auto first = std::ranges::find_if(
      steps_, [&](const Change& step) { return step.decision.generation > after; });
  check(first != steps_.end(), "a generation that nobody decided on");
  ShrinkResult out;
  if (first->store != store) out.store = store;
  out.first_unfinished = static_cast<uint64_t>(first->decision.first_unfinished);
  for (auto step = first; step != steps_.end(); ++step) {
    out.generation = step->decision.generation;
    for (const LostMember& lost : step->decision.lost) {
      // A process that joined and was lost in between was never a member for the caller.
      const int rank = rank_of(step->before.at(lost.rank), first->before);
      if (rank < 0) continue;
      out.lost.push_back({rank, lost.cause == LostMember::Cause::kDied, step->where.at(lost.rank)});
    }
  }
  for (size_t rank = 0; rank < members.size(); ++rank) {
    const int was = rank_of(members[rank], first->before);
    if (was >= 0)
      out.survivors.push_back(was);
    else
      out.joined.push_back(static_cast<int>(rank));
  }
  return out;
}

}  // namespace ringdist
