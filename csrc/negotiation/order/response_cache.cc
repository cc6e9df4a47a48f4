#include "negotiation/order/response_cache.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace ringdist {

ResponseCache::ResponseCache(size_t capacity) : capacity_(capacity) {
  check(capacity > 0, "a table of names holds at least one");
}

ResponseCache::CachedCallPtr ResponseCache::find(const std::string& name,
                                                 const CallDescription& description) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end() || !((*found->second)->description == description)) return nullptr;
  return *found->second;
}

ResponseCache::CachedCallPtr ResponseCache::find(uint64_t id) const {
  if (const auto found = by_id_.find(id); found != by_id_.end()) return *found->second;
  const auto old =
      std::ranges::find_if(retired_, [id](const auto& one) { return one.second->id == id; });
  return old == retired_.end() ? nullptr : old->second;
}

ExtrasByRank ResponseCache::last_extras(const std::string& name,
                                        const CallDescription& description) const {
  const auto old = std::find_if(retired_.rbegin(), retired_.rend(), [&](const auto& one) {
    return one.second->name == name && one.second->description == description;
  });
  return old == retired_.rend() ? ExtrasByRank() : old->second->extras;
}

ResponseCache::CachedCallPtr ResponseCache::decide(uint64_t position, const DecidedCall& call) {
  if (call.is_new) {
    const CallName& name = call.call;
    if (const auto old = by_name_.find(name.name); old != by_name_.end())
      retire(position, old->second);
    recent_.push_front(
        std::make_shared<CachedCall>(CachedCall{name.id, name.name, name.description, {}}));
    by_id_[name.id] = by_name_[name.name] = recent_.begin();
    if (recent_.size() > capacity_) retire(position, std::prev(recent_.end()));
  } else {
    const auto found = by_id_.find(call.call.id);
    if (found == by_id_.end()) return nullptr;
    recent_.splice(recent_.begin(), recent_, found->second);
  }
  CachedCallPtr& entry = recent_.front();
  if (!call.extras.empty()) {
    auto next = std::make_shared<CachedCall>(*entry);  // running batches still use the old entry
    for (const RankExtra& extra : call.extras) next->extras[extra.rank] = extra.values;
    entry = std::move(next);
  }
  return entry;
}

void ResponseCache::forget(uint64_t seen) {
  while (!retired_.empty() && retired_.front().first <= seen) retired_.pop_front();
}

void ResponseCache::retire(uint64_t position, Recent::iterator entry) {
  by_id_.erase((*entry)->id);
  by_name_.erase((*entry)->name);
  retired_.emplace_back(position, std::move(*entry));
  recent_.erase(entry);
}

}  // namespace ringdist
