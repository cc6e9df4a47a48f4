// The names that all ranks know, by the ids that the root has given them. Every rank does to it
// what decisions say, in their order, so that all have the same entries, and forget the same.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "negotiation/letter.h"

namespace ringdist {

class CallTable {
 public:
  struct Entry {
    uint64_t id;
    std::string name;
    CallDescription description;
    std::map<int, std::vector<int64_t>> extras;  // by rank
  };

  // `capacity`: entries, at least 1; those that were decided on least lately go.
  explicit CallTable(size_t capacity);

  // The entry of that name with that description, or null.
  const Entry* find(const std::string& name, const CallDescription& description) const;
  // Also of one that has gone, where messages may be on their way that name it.
  const Entry* find(uint64_t id) const;

  // What the decision of that position says of it. Null: it names an id that is not here.
  const Entry* decide(uint64_t position, const DecidedCall& call);

  // All who send to this rank have the decisions up to that one, so they name nothing that has gone
  // with one of them.
  void forget(uint64_t seen);

  size_t size() const { return recent_.size(); }

 private:
  using Recent = std::list<Entry>;  // the one that was decided on last is first

  void retire(uint64_t position, Recent::iterator entry);

  const size_t capacity_;
  Recent recent_;
  std::unordered_map<uint64_t, Recent::iterator> by_id_;
  std::unordered_map<std::string, Recent::iterator> by_name_;
  std::deque<std::pair<uint64_t, Entry>> retired_;  // by position
};

}  // namespace ringdist
