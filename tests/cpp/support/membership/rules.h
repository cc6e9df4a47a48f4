// Invariants of a World. They are checked when a process installs a generation, when a generation
// begins, and when a value is proposed.
#pragma once

#include <cstdint>
#include <string>

#include "support/membership/lineages.h"

namespace ringdist::membership {

class World;

class Rules {
 public:
  explicit Rules(World& world) : world_(world) {}

  // Returns the first violation, or "" if there is none.
  const std::string& violation() const { return violation_; }
  void fail(const std::string& what);
  const Lineages& lineages() const { return lineages_; }

  void on_installed(int index, uint64_t from, const Decision& decision);
  void on_admitted(int index);
  void on_begun(int index);
  void on_excluded(int index, uint64_t from, const Decision& decision);
  void on_composed(int index, const Decision& decision);

 private:
  void check_line(int index);
  void check_standings(const Decision& decision);

  World& world_;
  Lineages lineages_;
  std::string violation_;
};

}  // namespace ringdist::membership
