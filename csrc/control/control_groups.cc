#include "control/control_groups.h"

#include <algorithm>
#include <utility>

#include "control/control_peers.h"

namespace ringdist {
namespace {

constexpr Duration kLeftTime = std::chrono::minutes(1);
constexpr size_t kMaxOver = 256;

}  // namespace

ControlGroup& ControlGroupTable::join(uint64_t nonce, uint64_t id, int rank,
                                      const std::vector<ControlMember>& members) {
  auto found = groups_.find(nonce);
  if (found == groups_.end()) {
    ControlGroup made(LinkTopology(id, rank, members));
    made.ranks.insert(rank);  // first: without a rank it is one that was left
    found = groups_.emplace(nonce, std::move(made)).first;
  }
  found->second.ranks.insert(rank);
  return found->second;
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
    out.address = kind == LinkKind::kLocal ? member.unix_name : member.tcp_address;
    // Of a group that was left the peer may never know, and keep us waiting.
    if (kind == LinkKind::kTcp && (out.nonce == 0 || !group.left())) out.nonce = nonce;
  }
  return out;
}

void ControlGroupTable::discount_pause(Duration pause, TimePoint now) {
  for (auto& [nonce, group] : groups_) {
    if (auto& since = group.judged_since) since = std::min(*since + pause, now);
    for (auto& [host, heard] : group.heard) heard = std::min(heard + pause, now);
  }
}

}  // namespace ringdist
