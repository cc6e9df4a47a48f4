#include "control/control_groups.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "control/control_peers.h"
#include "os/socket.h"

namespace ringdist {
namespace {

constexpr size_t kRepresentatives = 2;  // per host

// A group that was left is forgotten after this time at the latest.
constexpr Duration kLeftTime = std::chrono::minutes(1);
constexpr size_t kMaxOver = 256;  // forgotten groups that are remembered as over

// Limit of groups in the formation barrier, this process' own ones included.
constexpr size_t kMaxGroups = 4096;
constexpr size_t kMostOfOthers = 16384;  // limit of ids of a group of others

}  // namespace

LinkTopology::LinkTopology(uint64_t my_context, int my_rank, std::vector<ControlMember> members)
    : my_context_(my_context) {
  // In the order of ranks, so that a process with several ranks is entered with its lowest one.
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
  // The distances 2^k in both directions give each host O(log H) neighbours.
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
  // The i-th representatives of both hosts are linked. If one host has fewer, its last one takes
  // the rest.
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

ControlGroup& ControlGroupTable::join(uint64_t nonce, uint64_t id, int rank,
                                      const std::vector<ControlMember>& members) {
  ControlGroup& group = groups_.try_emplace(nonce, LinkTopology(id, rank, members)).first->second;
  group.ranks.insert(rank);
  return group;
}

bool ControlGroupTable::leave(uint64_t nonce, int rank, TimePoint now) {
  ControlGroup* group = find(nonce);
  if (group == nullptr || group->ranks.erase(rank) == 0 || !group->left()) return false;
  group->left_at = now;
  return true;
}

std::vector<uint64_t> ControlGroupTable::forget_left(
    const std::function<bool(uint64_t nonce, const ControlGroup&)>& heard, TimePoint now) {
  std::vector<uint64_t> out;
  for (const auto& [nonce, group] : groups_) {
    if (!group.left()) continue;
    const bool all_heard = heard(nonce, group);
    if (all_heard || now - group.left_at >= kLeftTime) out.push_back(nonce);
    if (!all_heard) continue;
    ForgottenGroup over{nonce, {}};
    for (const auto& [process, member] : group.roster.processes())
      over.processes.push_back(process);
    over_.push_back(std::move(over));
  }
  while (over_.size() > kMaxOver) over_.pop_front();
  for (const uint64_t nonce : out) groups_.erase(nonce);
  return out;
}

bool ControlGroupTable::over(uint64_t nonce, uint64_t process) const {
  const auto found = std::ranges::find(over_, nonce, &ForgottenGroup::nonce);
  return found != over_.end() && std::ranges::count(found->processes, process) > 0;
}

ControlGroup* ControlGroupTable::find(uint64_t nonce) {
  const auto found = groups_.find(nonce);
  return found == groups_.end() ? nullptr : &found->second;
}

const ControlMember* ControlGroupTable::member(uint64_t id) const {
  for (const auto& [nonce, group] : groups_)
    if (group.roster.has(id)) return &group.roster.member(id);
  return nullptr;
}

bool ControlGroupTable::is_monitored(uint64_t id) const {
  return std::ranges::any_of(groups_, [id](const auto& entry) {
    return !entry.second.left() && entry.second.roster.has(id);
  });
}

ControlGroupTable::Address ControlGroupTable::address_of(uint64_t id, LinkKind kind) const {
  Address out;
  for (const auto& [nonce, group] : groups_) {
    if (!group.roster.has(id)) continue;
    const ControlMember& member = group.roster.member(id);
    // The peer may never get a group that was left here, and would hold the connection. So a group
    // that was not left is preferred.
    if (out.nonce == 0 || !group.left())
      out = {kind == LinkKind::kLocal ? member.unix_name : member.tcp_address, nonce,
             without_port(group.roster.self().tcp_address)};
  }
  return out;
}

// No time is moved past `now`, which would hide silence that follows.
void ControlGroupTable::discount_pause(Duration pause, TimePoint now) {
  for (auto& [nonce, group] : groups_) {
    if (auto& since = group.watched_since) since = std::min(*since + pause, now);
    for (auto& [host, heard] : group.heard) heard = std::min(heard + pause, now);
  }
}

std::vector<uint64_t> FormationBarrier::learn(uint64_t nonce,
                                              const std::vector<uint64_t>& processes,
                                              const std::function<bool(uint64_t nonce)>& ours) {
  std::vector<uint64_t> news;
  news.reserve(processes.size());
  std::set<uint64_t>& known = enter(nonce, ours);
  // The caller has checked the members of a group of ours.
  const size_t most = ours(nonce) ? std::numeric_limits<size_t>::max() : kMostOfOthers;
  for (const uint64_t process : processes)
    if (known.size() < most && known.insert(process).second) news.push_back(process);
  return news;
}

std::set<uint64_t>& FormationBarrier::enter(uint64_t nonce,
                                            const std::function<bool(uint64_t nonce)>& ours) {
  if (const auto found = known_.find(nonce); found != known_.end()) return found->second;
  if (order_.size() >= kMaxGroups) {
    const auto old = std::ranges::find_if(order_, [&](uint64_t one) { return !ours(one); });
    // forget() gets a copy, because it removes the element of `order_`.
    if (old != order_.end()) forget(uint64_t{*old});
  }
  order_.push_back(nonce);
  return known_[nonce];
}

void FormationBarrier::forget(uint64_t nonce) {
  known_.erase(nonce);
  std::erase(order_, nonce);
}

bool FormationBarrier::has(uint64_t nonce, uint64_t process) const {
  const auto known = known_.find(nonce);
  return known != known_.end() && known->second.contains(process);
}

std::vector<uint64_t> FormationBarrier::of(uint64_t nonce) const {
  const auto known = known_.find(nonce);
  if (known == known_.end()) return {};
  return {known->second.begin(), known->second.end()};
}

}  // namespace ringdist
