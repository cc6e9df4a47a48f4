// What became of a group that has lost members, or taken newcomers. A value.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ringdist {

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

}  // namespace ringdist
