// The names that all ranks know, by the ids that the root has given them. Every rank does to it
// what decisions say, in their order, so that all have the same entries, and forget the same.
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

using ExtrasByRank = std::map<int, std::vector<int64_t>>;

class ResponseCache {
 public:
  struct Entry {
    uint64_t id;
    std::string name;
    CallDescription description;
    ExtrasByRank extras;
  };

  using EntryPtr = std::shared_ptr<const Entry>;

  // A call that all have made.
  struct AgreedCall {
    EntryPtr entry;
    int last;  // the rank that was ready last
  };

  // `capacity`: entries, at least 1; those that were decided on least lately go.
  explicit ResponseCache(size_t capacity);

  // The entry of that name with that description, or null.
  EntryPtr find(const std::string& name, const CallDescription& description) const;
  // Also of one that has gone, where messages may be on their way that name it.
  EntryPtr find(uint64_t id) const;

  // Of the entry of that name and description that has gone last, if it is still there.
  ExtrasByRank last_extras(const std::string& name, const CallDescription& description) const;

  // The entry as the decision of that position leaves it. Null: it names an id that is not here.
  EntryPtr decide(uint64_t position, const DecidedCall& call);

  // All who send to this rank have the decisions up to that one, so they name nothing that has gone
  // with one of them.
  void forget(uint64_t seen);

  // With those that have gone.
  size_t size() const { return recent_.size() + retired_.size(); }

 private:
  using Recent = std::list<EntryPtr>;  // the one that was decided on last is first

  void retire(uint64_t position, Recent::iterator entry);

  const size_t capacity_;
  Recent recent_;
  std::unordered_map<uint64_t, Recent::iterator> by_id_;
  std::unordered_map<std::string, Recent::iterator> by_name_;
  std::deque<std::pair<uint64_t, EntryPtr>> retired_;  // by position
};

}  // namespace ringdist
