#include "engine/door.h"

namespace ringdist {
namespace {

constexpr Duration kGuestTime = Milliseconds(700);  // for who knocks no more
constexpr Duration kForOthers = Milliseconds(150);  // who were started together
constexpr size_t kMostGuests = 4096;
constexpr size_t kMostAtOnce = 128;  // a decision has all their entries

}  // namespace

bool Door::knock(const Newcomer& newcomer, TimePoint now) {
  const auto known = guests_.find(newcomer.process);
  if (known != guests_.end()) {
    known->second.heard_at = now;
    return false;
  }
  if (guests_.size() >= kMostGuests) return false;
  guests_[newcomer.process] = {newcomer.entry, now, now};
  return true;
}

void Door::accept(ProcessId process) {
  const auto known = guests_.find(process);
  if (known != guests_.end()) known->second.accepted = true;
}

std::vector<Newcomer> Door::waiting(TimePoint now) const {
  std::vector<Newcomer> out;
  for (const auto& [process, guest] : guests_)
    if (guest.accepted && now - guest.heard_at < kGuestTime && out.size() < kMostAtOnce)
      out.push_back({process, guest.entry});
  return out;
}

bool Door::is_due(TimePoint now) const {
  for (const auto& [process, guest] : guests_)
    if (guest.accepted && now - guest.heard_at < kGuestTime && now - guest.came_at > kForOthers)
      return true;
  return false;
}

void Door::let_in(const std::vector<ProcessId>& members, TimePoint now) {
  for (const ProcessId process : members) guests_.erase(process);
  std::erase_if(guests_, [&](const auto& one) { return now - one.second.heard_at > kGuestTime; });
}

}  // namespace ringdist
