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
  // Of those who take part: whoever reaches one of them reaches all that that one does.
  bool is_parted_cleanly() const;

 private:
  std::string open(const std::vector<int>& together);
  bool knows_who_went_on(Process& one, const std::vector<int>& together);
  bool has_quorum(const std::vector<int>& together, const Process& newest);

  World& world_;
  const Lineages& lineages_;
};

}  // namespace ringdist::membership
