#include "consensus/decision.h"

#include <algorithm>

#include "base/hash.h"

namespace ringdist {
namespace {

// More than any list of a message has.
constexpr uint32_t kMostEntries = 1 << 20;

// Reads that many entries, or stops where the bytes do.
template <typename Each>
void get_each(Reader& in, const Each& each) {
  const auto count = std::min(in.get<uint32_t>(), kMostEntries);
  for (uint32_t i = 0; i < count && in.ok(); ++i) each();
}

}  // namespace

int Decision::rank_of(ProcessId process) const {
  const auto found = std::find(members.begin(), members.end(), process);
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

bool Decision::makes_sense() const {
  if (stay == 0 || stay > members.size() || members.size() - stay != newcomers.size()) return false;
  for (size_t i = 0; i < newcomers.size(); ++i)
    if (newcomers[i].process != members[stay + i]) return false;
  for (const Lost& one : lost)
    if (one.rank < 0 || one.cause > Lost::Cause::kSilent) return false;
  auto sorted = members;
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
}

void put(Writer& out, const Decision& decision) {
  out.put(decision.generation)
      .put(decision.after)
      .put(decision.proposed.round)
      .put(decision.proposed.rank);
  out.put(static_cast<uint32_t>(decision.members.size()));
  for (const ProcessId member : decision.members) out.put(member);
  out.put(decision.stay);
  out.put(static_cast<uint32_t>(decision.newcomers.size()));
  for (const Newcomer& one : decision.newcomers) out.put(one.process).put_string(one.entry);
  out.put(static_cast<uint32_t>(decision.lost.size()));
  for (const Lost& one : decision.lost) out.put(one.rank).put(one.cause);
  out.put(decision.first_unfinished).put_string(decision.store);
}

Decision get_decision(Reader& in) {
  Decision out;
  out.generation = in.get<uint32_t>();
  out.after = in.get<uint64_t>();
  out.proposed.round = in.get<uint32_t>();
  out.proposed.rank = in.get<int32_t>();
  get_each(in, [&] { out.members.push_back(in.get<ProcessId>()); });
  out.stay = in.get<uint32_t>();
  get_each(in, [&] {
    const auto process = in.get<ProcessId>();
    out.newcomers.push_back({process, in.get_string()});
  });
  get_each(in, [&] {
    const auto rank = in.get<int32_t>();
    out.lost.push_back({rank, in.get<Lost::Cause>()});
  });
  out.first_unfinished = in.get<int64_t>();
  out.store = in.get_string();
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
