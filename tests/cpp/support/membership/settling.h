// Decides if a World has come to rest: every process that can continue has done so, and no other
// process has.
#pragma once

#include <string>
#include <vector>

#include "support/membership/lineages.h"

namespace ringdist::membership {

class Process;
class World;

class Settling {
 public:
  Settling(World& world, const Lineages& lineages) : world_(world), lineages_(lineages) {}

  // Returns a description of unfinished work, or "" if there is none.
  std::string open();
  // Does the same for sets of processes in which each reaches each other. Only these are
  // guaranteed to come to rest.
  std::string broken();

 private:
  std::string first_open(bool promised);
  std::string open_of(const std::vector<int>& together);
  bool takes_part(int index);
  std::vector<int> reached_from(int index);
  bool all_talk(const std::vector<int>& together);
  bool knows_who_went_on(Process& one, const std::vector<int>& together);
  bool has_quorum(const std::vector<int>& together, const Process& newest);

  World& world_;
  const Lineages& lineages_;
};

}  // namespace ringdist::membership
