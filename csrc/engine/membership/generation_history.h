// From one generation of a group to the next, as they were decided since a group was last made of
// one: what shrink() reports. A value.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "membership/paxos/decision.h"

namespace ringdist {

// What became of a group that has lost members, or taken newcomers. A value.
class Communicator;

struct ShrinkResult {
  struct LostMember {
    int rank = 0;       // in the group that was shrunk
    bool died = false;  // the kernel of its host said so; else nothing came from it
    std::string where;  // "pid 123 on host x"
  };

  std::shared_ptr<Communicator> group;  // it forms
  uint32_t generation = 0;
  std::string id;  // names it, on all members, and no other
  std::vector<int>
      survivors;            // by new rank: that in the group that was shrunk; of a newcomer nothing
  std::vector<int> joined;  // the new ranks of newcomers: those that follow
  std::vector<LostMember> lost;
  uint64_t first_unfinished = 0;  // the first collective, from 1, that not all who stay had ended
  std::string store;              // the address of the one that goes on; "": the old one
};

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
