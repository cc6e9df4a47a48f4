#include "engine/join_queue.h"

#include <algorithm>

namespace ringdist {
namespace {

constexpr Duration kGuestTime = Milliseconds(700);  // for who knocks no more
constexpr Duration kForOthers = Milliseconds(150);  // who were started together
constexpr size_t kMostGuests = 4096;
constexpr size_t kMostAtOnce = 128;  // a decision has all their entries
constexpr Duration kFirstHostPause =
    std::chrono::seconds(2);  // of a host whose process did not come
constexpr Duration kLongestHostPause = std::chrono::minutes(1);
constexpr Duration kFailureTime = std::chrono::minutes(5);  // until it is forgotten

}  // namespace

bool JoinQueue::request_join(const Newcomer& newcomer, bool reached, TimePoint now) {
  const bool is_new = !pending_.contains(newcomer.process);
  if (is_new && pending_.size() >= kMostGuests) return false;
  PendingJoin& guest = pending_[newcomer.process];
  if (is_new) guest.entry = newcomer.entry;
  guest.heard_at = now;
  if (!reached)
    guest.reached_at.reset();
  else if (!guest.reached_at)
    guest.reached_at = now;
  return is_new;
}

void JoinQueue::accept(ProcessId process, const std::string& host) {
  const auto known = pending_.find(process);
  if (known == pending_.end()) return;
  known->second.accepted = true;
  known->second.host = host;
}

void JoinQueue::fail(const std::string& host, TimePoint now) {
  std::erase_if(failures_, [&](const auto& one) { return now - one.second.until > kFailureTime; });
  Failures& failures = failures_[host];
  const Duration pause = kFirstHostPause * (1 << std::min(failures.count++, 5));
  failures.until = now + std::min(pause, kLongestHostPause);
}

bool JoinQueue::may_come(const PendingJoin& guest, TimePoint now) const {
  const auto failures = failures_.find(guest.host);
  return guest.accepted && guest.reached_at && now - guest.heard_at < kGuestTime &&
         (failures == failures_.end() || now >= failures->second.until);
}

std::vector<Newcomer> JoinQueue::waiting(TimePoint now) const {
  std::vector<Newcomer> out;
  for (const auto& [process, guest] : pending_)
    if (may_come(guest, now) && out.size() < kMostAtOnce) out.push_back({process, guest.entry});
  return out;
}

bool JoinQueue::is_due(TimePoint now) const {
  for (const auto& [process, guest] : pending_)
    if (may_come(guest, now) && now - *guest.reached_at > kForOthers) return true;
  return false;
}

void JoinQueue::admit_members(const std::vector<ProcessId>& members, TimePoint now) {
  for (const ProcessId process : members) pending_.erase(process);
  std::erase_if(pending_, [&](const auto& one) { return now - one.second.heard_at > kGuestTime; });
  for (auto& [process, guest] : pending_) guest.reached_at.reset();  // there are other members
}

}  // namespace ringdist
