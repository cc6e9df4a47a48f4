#include "support/membership/settling.h"

#include <algorithm>

#include "support/membership/world.h"

namespace ringdist::membership {

bool Settling::is_parted_cleanly() const {
  const auto takes_part = [](const auto& one) {
    return one->alive && !one->stopped && one->is_member() && !one->excluded();
  };
  for (const auto& a : world_.processes())
    for (const auto& b : world_.processes())
      for (const auto& c : world_.processes()) {
        if (!takes_part(a) || !takes_part(b) || !takes_part(c) || a == c) continue;
        const int from = a->index(), over = b->index(), to = c->index();
        if (from != over && over != to && world_.reach().talk(from, over) &&
            world_.reach().talk(over, to) && !world_.reach().talk(from, to))
          return false;
      }
  return true;
}

std::string Settling::open() {
  std::vector<bool> seen(world_.processes().size());
  for (const auto& one : world_.processes()) {
    if (!one->alive || one->stopped || seen[static_cast<size_t>(one->index())]) continue;
    if (!one->is_member() || one->excluded()) continue;
    std::vector<int> together;
    for (const auto& other : world_.processes()) {
      const int index = other->index();
      if (!other->alive || other->stopped || !other->is_member() || other->excluded()) continue;
      if (index != one->index() && !world_.reach().talk(one->index(), index)) continue;
      together.push_back(index);
      seen[static_cast<size_t>(index)] = true;
    }
    if (const std::string why = open(together); !why.empty()) return why;
  }
  return "";
}

// Somebody whom it can ask: else it cannot hear that others went on, and goes nowhere.
bool Settling::knows_who_went_on(Process& one, const std::vector<int>& together) {
  for (const ProcessId member : one.generations().members()) {
    const int index = Process::index_of(member);
    if (std::find(together.begin(), together.end(), index) == together.end()) continue;
    if (lineages_.depth(world_.process(index).lineage()) > lineages_.depth(one.lineage()))
      return true;
  }
  return false;
}

std::string Settling::open(const std::vector<int>& together) {
  const Process* newest = nullptr;
  for (const int index : together) {
    const Process& one = world_.process(index);
    if (!one.is_member() || one.excluded()) continue;
    if (!newest || lineages_.depth(one.lineage()) > lineages_.depth(newest->lineage()))
      newest = &one;
  }
  if (!newest) return "";
  const auto& members = world_.process(newest->index()).generations().members();
  const bool whole = std::all_of(members.begin(), members.end(), [&](ProcessId member) {
    return std::find(together.begin(), together.end(), Process::index_of(member)) != together.end();
  });
  if (!whole)
    return has_quorum(together, *newest)
               ? "process " + std::to_string(newest->index()) + " has a quorum and does not go on"
               : "";
  for (const int index : together) {
    Process& one = world_.process(index);
    if (!one.is_member() || one.excluded()) continue;
    if (one.lineage() != newest->lineage() && !knows_who_went_on(one, together)) continue;
    if (one.lineage() != newest->lineage())
      return "process " + std::to_string(index) + " has not heard what was decided";
    if (one.generations().state() != Generations::State::kBegun)
      return "the generation of process " + std::to_string(index) + " does not begin";
    if (one.frozen(one.lineage()))
      return "process " + std::to_string(index) + " waits for a decision";
  }
  return "";
}

bool Settling::has_quorum(const std::vector<int>& together, const Process& newest) {
  const auto& members = world_.process(newest.index()).generations().members();
  const auto size = static_cast<int>(members.size());
  int votes = 0, gone = 0;  // here; reported dead to somebody here
  bool store = false;
  const auto is_here = [&](int index) {
    return std::find(together.begin(), together.end(), index) != together.end();
  };
  for (const ProcessId member : members) {
    const int index = Process::index_of(member);
    if (is_here(index)) {
      ++votes;
      store = store || world_.reaches_store(index);
    } else {
      gone += std::any_of(members.begin(), members.end(), [&](ProcessId other) {
        const int teller = Process::index_of(other);
        return is_here(teller) && world_.was_told(teller, index);
      });
    }
  }
  return 2 * votes > size || (2 * votes == size && store) || votes + gone == size;
}

}  // namespace ringdist::membership
