// GenerationHistory: the decisions between the generation of the last group that was created and
// the present one. shrink() reports them to its caller. A value.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "membership/paxos/decision.h"

namespace ringdist {

class Communicator;

// The result of shrink() or of a join: the new group and how it differs from the old one. A value.
struct ShrinkResult {
  struct LostMember {
    int rank = 0;  // in the group that was shrunk
    // The kernel of its host reported its death; otherwise it was silent for too long.
    bool died = false;
    std::string where;  // "pid 123 on host x"
  };

  std::shared_ptr<Communicator> group;  // it is forming
  uint32_t generation = 0;
  std::string id;              // the same text on all members, and no other generation has it
  std::vector<int> survivors;  // old ranks of the survivors, by new rank
  std::vector<int> joined;     // new ranks of the newcomers, which follow the survivors
  std::vector<LostMember> lost;
  // The first collective, from 1, that had not ended on all survivors; 0 for a newcomer.
  uint64_t first_unfinished = 0;
  std::string store;  // address of the store in use from here on, or "" if it has not changed
};

// Collects changes, oldest first.
class GenerationHistory {
 public:
  // One decision, with the state before it.
  struct Change {
    Decision decision;
    std::vector<ProcessId> before;   // members that decided, by rank
    std::vector<std::string> where;  // where they run, by rank: "pid 123 on host x"
    std::string store;               // address of the store before

    // Returns for example "generation 1 of group 'g': ranks 0 1 3 of 4 go on; rank 2 (pid 12 on
    // host a) died".
    std::string describe(const std::string& group) const;
  };

  void add(Change step) { steps_.push_back(std::move(step)); }
  void clear() { steps_.clear(); }
  // Reports all changes since generation `after` as one. `members` are the members of the present
  // generation and `store` the address of its store. There must be at least one such change.
  ShrinkResult report(uint32_t after, const std::vector<ProcessId>& members,
                      const std::string& store) const;

 private:
  std::vector<Change> steps_;
};

}  // namespace ringdist
