// From one generation of a group to the next, as they were decided since a group was last made of
// one: what shrink() reports. A value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/shrink_result.h"
#include "membership/paxos/decision.h"

namespace ringdist {

class GenerationHistory {
 public:
  struct Change {
    Decision decision;
    std::vector<ProcessId> before;   // the members that decided, by rank
    std::vector<std::string> where;  // they are
    std::string store;               // the address of the one before

    // "generation 1 of group 'g': ranks 0 1 3 of 4 go on; rank 2 (pid 12 on host a) died"
    std::string describe(const std::string& group) const;
  };

  void add(Change step) { steps_.push_back(std::move(step)); }
  void clear() { steps_.clear(); }
  // Of all steps from that generation on to the one that has these members.
  ShrinkResult report(uint32_t after, const std::vector<ProcessId>& members,
                      const std::string& store) const;

 private:
  std::vector<Change> steps_;
};

}  // namespace ringdist
