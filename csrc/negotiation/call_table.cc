#include "negotiation/call_table.h"

#include <algorithm>

#include "base/check.h"

namespace ringdist {

CallTable::CallTable(size_t capacity) : capacity_(capacity) { RINGDIST_CHECK(capacity > 0); }

const CallTable::Entry* CallTable::find(const std::string& name,
                                        const CallDescription& description) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end() || !(found->second->description == description)) return nullptr;
  return &*found->second;
}

const CallTable::Entry* CallTable::find(uint64_t id) const {
  if (const auto found = by_id_.find(id); found != by_id_.end()) return &*found->second;
  const auto old = std::ranges::find_if(retired_, [id](const auto& o) { return o.second.id == id; });
  return old == retired_.end() ? nullptr : &old->second;
}

const CallTable::Entry* CallTable::decide(uint64_t position, const DecidedCall& call) {
  if (call.is_new) {
    const CallName& name = call.call;
    if (const auto old = by_name_.find(name.name); old != by_name_.end())
      retire(position, old->second);
    recent_.push_front({name.id, name.name, name.description, {}});
    by_id_[name.id] = by_name_[name.name] = recent_.begin();
    if (recent_.size() > capacity_) retire(position, std::prev(recent_.end()));
  } else {
    const auto found = by_id_.find(call.call.id);
    if (found == by_id_.end()) return nullptr;
    recent_.splice(recent_.begin(), recent_, found->second);
  }
  for (const RankExtra& extra : call.extras) recent_.front().extras[extra.rank] = extra.values;
  return &recent_.front();
}

void CallTable::forget(uint64_t seen) {
  while (!retired_.empty() && retired_.front().first <= seen) retired_.pop_front();
}

void CallTable::retire(uint64_t position, Recent::iterator entry) {
  by_id_.erase(entry->id);
  by_name_.erase(entry->name);
  retired_.emplace_back(position, std::move(*entry));
  recent_.erase(entry);
}

}  // namespace ringdist
