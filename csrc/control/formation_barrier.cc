#include "control/formation_barrier.h"

#include <algorithm>

namespace ringdist {
namespace {

constexpr size_t kMaxGroups = 4096;  // that this process does not know yet, and its own

}  // namespace

std::vector<uint64_t> FormationBarrier::learn(uint64_t nonce,
                                              const std::vector<uint64_t>& processes,
                                              const std::function<bool(uint64_t nonce)>& ours) {
  std::vector<uint64_t> news;
  news.reserve(processes.size());
  std::set<uint64_t>& known = enter(nonce, ours);
  for (const uint64_t process : processes)
    if (known.insert(process).second) news.push_back(process);
  return news;
}

// Both of its lists, or neither, have it.
std::set<uint64_t>& FormationBarrier::enter(uint64_t nonce,
                                            const std::function<bool(uint64_t nonce)>& ours) {
  if (const auto found = known_.find(nonce); found != known_.end()) return found->second;
  if (order_.size() >= kMaxGroups) {
    const auto old = std::ranges::find_if(order_, [&](uint64_t one) { return !ours(one); });
    if (old != order_.end()) forget(uint64_t{*old});
  }
  order_.push_back(nonce);
  try {
    return known_[nonce];
  } catch (...) {
    order_.pop_back();
    throw;
  }
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
