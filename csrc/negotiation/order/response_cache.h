// Cache of calls that all ranks have made before, by ids that the root assigns. All ranks apply the
// same decisions in the same order, so they have the same entries and retire the same ones.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "negotiation/order/call_messages.h"

namespace ringdist {

// Extras of the ranks that have some.
using ExtrasByRank = std::map<int, std::vector<int64_t>>;

// Least-recently-used cache of names and descriptions. One thread at a time.
class ResponseCache {
 public:
  // A call with its latest extras. Immutable, because running batches share it.
  struct CachedCall {
    uint64_t id;
    std::string name;
    CallDescription description;
    ExtrasByRank extras;
  };

  using CachedCallPtr = std::shared_ptr<const CachedCall>;

  // A call that all ranks have made.
  struct AgreedCall {
    CachedCallPtr entry;
    int last;  // the rank that called last
  };

  // `capacity` is the number of entries, at least 1. The least recently used entries are retired.
  explicit ResponseCache(size_t capacity);

  // Returns the entry with this name and description, or null.
  CachedCallPtr find(const std::string& name, const CallDescription& description) const;
  // Returns the entry with this id, or null. Also finds retired entries while messages in flight
  // may refer to them.
  CachedCallPtr find(uint64_t id) const;

  // Returns the extras of the last retired entry with this name and description, if there is one.
  ExtrasByRank last_extras(const std::string& name, const CallDescription& description) const;

  // Applies a call of the decision with this number, and returns its entry. Returns null if the
  // call is not new and its id has no entry, or only a retired one.
  CachedCallPtr decide(uint64_t position, const DecidedCall& call);

  // Deletes entries that were retired by decisions up to `seen`. All ranks that send to this one
  // have these decisions, so they do not use the ids any more.
  void forget(uint64_t seen);

  // Returns the number of entries, including retired ones.
  size_t size() const { return recent_.size() + retired_.size(); }

 private:
  using Recent = std::list<CachedCallPtr>;  // the most recent one is first

  // Moves an entry to the retired ones.
  void retire(uint64_t position, Recent::iterator entry);

  const size_t capacity_;
  Recent recent_;
  std::unordered_map<uint64_t, Recent::iterator> by_id_;
  std::unordered_map<std::string, Recent::iterator> by_name_;
  // with the number of the decision that retired them
  std::deque<std::pair<uint64_t, CachedCallPtr>> retired_;
};

}  // namespace ringdist
