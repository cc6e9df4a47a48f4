// Whether a world has come to rest: every process that can go on has, and nobody else.
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

  // What is still open; "": nothing.
  std::string open();
  // The same of those who are promised that it comes to rest: each of them reaches each other.
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
