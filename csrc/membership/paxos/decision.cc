#include "membership/paxos/decision.h"

#include <algorithm>

#include "base/hash.h"

namespace ringdist {

int rank_of(ProcessId process, const std::vector<ProcessId>& members) {
  const auto found = std::find(members.begin(), members.end(), process);
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

GenerationId Decision::id() const { return {generation, nonce_of(*this)}; }

bool Decision::makes_sense() const {
  if (survivor_count == 0 || survivor_count > members.size() ||
      members.size() - survivor_count != newcomers.size())
    return false;
  // The members have no addresses of newcomers, so they have to rendezvous.
  if (!newcomers.empty() && !needs_rendezvous) return false;
  for (size_t i = 0; i < newcomers.size(); ++i)
    if (newcomers[i].process != members[survivor_count + i]) return false;
  for (const LostMember& one : lost)
    if (one.rank < 0 || one.cause > LostMember::Cause::kSilent) return false;
  // A process must not be a member twice.
  auto sorted = members;
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
}

bool Decision::comes_from(const std::vector<ProcessId>& before) const {
  if (survivor_count + lost.size() != before.size()) return false;
  std::vector<bool> is_lost(before.size());
  for (const LostMember& one : lost) {
    const auto rank = static_cast<size_t>(one.rank);
    if (rank >= before.size() || is_lost[rank]) return false;
    is_lost[rank] = true;
  }
  size_t at = 0;
  for (size_t rank = 0; rank < before.size(); ++rank)
    if (!is_lost[rank] && before[rank] != members[at++]) return false;
  return true;
}

void put(Writer& out, const Ballot& ballot) { out.put(ballot.round).put(ballot.rank); }

Ballot get_ballot(Reader& in) {
  const auto round = in.get<uint32_t>();
  return {round, in.get<int32_t>()};
}

void put(Writer& out, const std::vector<Newcomer>& newcomers) {
  out.put(static_cast<uint32_t>(newcomers.size()));
  for (const Newcomer& one : newcomers) out.put(one.process).put_string(one.entry);
}

std::vector<Newcomer> get_newcomers(Reader& in) {
  std::vector<Newcomer> out;
  get_each(in, [&] {
    const auto process = in.get<ProcessId>();
    out.push_back({process, in.get_string()});
  });
  return out;
}

void put(Writer& out, const Decision& decision) {
  out.put(decision.generation).put(decision.after);
  put(out, decision.proposed);
  out.put(static_cast<uint32_t>(decision.members.size()));
  for (const ProcessId member : decision.members) out.put(member);
  out.put(decision.survivor_count);
  put(out, decision.newcomers);
  out.put(static_cast<uint32_t>(decision.lost.size()));
  for (const LostMember& one : decision.lost) out.put(one.rank).put(one.cause);
  out.put(decision.first_unfinished)
      .put_string(decision.store)
      .put(uint8_t{decision.needs_rendezvous});
}

// Reads in the order of put(). A cause may have any value here; Decision::makes_sense() checks it.
Decision get_decision(Reader& in) {
  Decision out;
  out.generation = in.get<uint32_t>();
  out.after = in.get<uint64_t>();
  out.proposed = get_ballot(in);
  get_each(in, [&] { out.members.push_back(in.get<ProcessId>()); });
  out.survivor_count = in.get<uint32_t>();
  out.newcomers = get_newcomers(in);
  get_each(in, [&] {
    const auto rank = in.get<int32_t>();
    out.lost.push_back({rank, in.get<LostMember::Cause>()});
  });
  out.first_unfinished = in.get<int64_t>();
  out.store = in.get_string();
  out.needs_rendezvous = in.get<uint8_t>() != 0;
  return out;
}

uint64_t nonce_of(const Decision& decision) {
  Hash hash;
  hash.add(decision.after).add(static_cast<int64_t>(decision.generation));
  hash.add(static_cast<int64_t>(decision.proposed.round));
  hash.add(static_cast<int64_t>(decision.proposed.rank));
  for (const ProcessId member : decision.members) hash.add(member);
  return hash.value();
}

}  // namespace ringdist
