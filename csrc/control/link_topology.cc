#include "control/link_topology.h"

#include <algorithm>
#include <set>

namespace ringdist {
namespace {

constexpr size_t kRepresentatives = 2;

}  // namespace

LinkTopology::LinkTopology(uint64_t my_context, int my_rank, std::vector<ControlMember> members)
    : my_context_(my_context) {
  std::sort(members.begin(), members.end(),
            [](const ControlMember& a, const ControlMember& b) { return a.rank < b.rank; });
  for (const ControlMember& m : members) {
    if (m.rank == my_rank) my_host_ = m.host;
    if (processes_.emplace(m.context_id, m).second) hosts_[m.host].push_back(m.context_id);
  }
  std::vector<int> order;  // host indices need not be dense
  for (const auto& [host, processes] : hosts_) order.push_back(host);
  auto mine = static_cast<size_t>(std::find(order.begin(), order.end(), my_host_) - order.begin());
  std::set<int> found;
  for (size_t step = 1; step < order.size(); step *= 2) {
    found.insert(order[(mine + step) % order.size()]);
    found.insert(order[(mine + order.size() - step) % order.size()]);
  }
  found.erase(my_host_);
  neighbours_.assign(found.begin(), found.end());
}

std::vector<uint64_t> LinkTopology::local_peers() const {
  std::vector<uint64_t> out;
  auto mine = hosts_.find(my_host_);
  if (mine == hosts_.end()) return out;
  std::copy_if(mine->second.begin(), mine->second.end(), std::back_inserter(out),
               [&](uint64_t id) { return id != my_context_; });
  return out;
}

std::vector<uint64_t> LinkTopology::representatives(int host, const HasDeparted& departed) const {
  std::vector<uint64_t> out;
  for (uint64_t id : hosts_.at(host)) {
    if (out.size() == kRepresentatives) break;
    if (!departed(id)) out.push_back(id);
  }
  return out;
}

bool LinkTopology::representative(const HasDeparted& departed) const {
  auto mine = representatives(my_host_, departed);
  return std::find(mine.begin(), mine.end(), my_context_) != mine.end();
}

std::vector<uint64_t> LinkTopology::links_to(int host, const HasDeparted& departed) const {
  auto mine = representatives(my_host_, departed);
  auto theirs = representatives(host, departed);
  std::set<uint64_t> out;
  if (mine.empty() || theirs.empty()) return {};
  for (size_t i = 0; i < std::max(mine.size(), theirs.size()); ++i)
    if (mine[std::min(i, mine.size() - 1)] == my_context_)
      out.insert(theirs[std::min(i, theirs.size() - 1)]);
  return {out.begin(), out.end()};
}

bool LinkTopology::dials_first(uint64_t peer) const {
  const ControlMember& other = member(peer);
  return other.host == my_host_ ? member(my_context_).rank < other.rank : my_host_ < other.host;
}

}  // namespace ringdist
