#include "membership/paxos/voter_tracker.h"

#include <algorithm>

namespace ringdist {

std::vector<int32_t> VoterTracker::dead_ranks() const {
  std::vector<int32_t> out;
  for (int rank = 0; rank < size(); ++rank)
    if (dead_.has(rank)) out.push_back(rank);
  return out;
}

bool VoterTracker::is_silent(int rank, TimePoint now) const {
  const VoterState& member = at(rank);
  if (!member.asked) return false;
  const TimePoint late = *member.asked + timeouts_.reply_timeout;
  if (!member.given_up) return now >= late;
  return now >= std::min(late, std::max(*member.asked, *member.given_up) + timeouts_.loss_report);
}

bool VoterTracker::all_others_gone(const RankSet& here, TimePoint now) const {
  for (int rank = 0; rank < size(); ++rank)
    if (!here.has(rank) && !dead_.has(rank) && !is_silent(rank, now)) return false;
  return true;
}

void VoterTracker::note_promise(int rank, const Ballot& ballot, TimePoint now) {
  VoterState& member = at(rank);
  if (ballot != member.promised) {
    member.promised = ballot;
    member.promised_at = now;
  } else if (now - member.promised_at >= timeouts_.grace) {
    // It repeats a request that was answered long ago, so it does not receive the answers.
    member.unresponsive = true;
  }
}

int VoterTracker::count_before(int rank) const {
  int out = 0;
  for (int other = 0; other < rank; ++other) out += !is_gone(other);
  return out;
}

}  // namespace ringdist
