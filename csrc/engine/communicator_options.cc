#include "engine/communicator_options.h"

#include <algorithm>

#include "base/check.h"

namespace ringdist {

void CommunicatorOptions::state_in(Entry& entry) const {
  entry.options_hash = config.options_hash();
  entry.options = config.options_text();
  entry.costs = costs;
}

CommunicatorOptions CommunicatorOptions::of(const std::vector<int>& ranks, int own) const {
  CommunicatorOptions out = *this;
  out.rank = static_cast<int>(std::ranges::find(ranks, own) - ranks.begin());
  out.size = static_cast<int>(ranks.size());
  check(out.rank < out.size, "a group of some ranks without this one");
  out.members.clear();
  for (const int one : ranks) out.members.push_back(members.at(one));
  return out;
}

}  // namespace ringdist
