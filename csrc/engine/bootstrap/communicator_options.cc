#include "engine/bootstrap/communicator_options.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ringdist {

void CommunicatorOptions::state_in(RankInfo& entry) const {
  entry.options_hash = config.options_hash();
  entry.options = config.options_text();
  entry.costs = costs;
}

CommunicatorOptions CommunicatorOptions::named(std::string name, Milliseconds timeout,
                                               std::shared_ptr<GroupService> service) const {
  CommunicatorOptions out = *this;
  out.name = std::move(name);
  out.timeout = timeout;
  out.service = std::move(service);
  return out;
}

CommunicatorOptions CommunicatorOptions::of(const std::vector<int>& ranks, int own) const {
  CommunicatorOptions out = named(name, timeout, /*service=*/nullptr);
  out.rank = static_cast<int>(std::ranges::find(ranks, own) - ranks.begin());
  out.size = static_cast<int>(ranks.size());
  check(out.rank < out.size, "a group of some ranks without this one");
  out.members.clear();
  for (const int one : ranks) out.members.push_back(members.at(one));
  return out;
}

}  // namespace ringdist
