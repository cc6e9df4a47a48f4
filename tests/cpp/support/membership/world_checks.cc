// What must hold in a world.
#include <algorithm>
#include <limits>

#include "support/membership/world.h"

namespace ringdist::membership {

void World::fail(const std::string& what) {
  if (outcome_.violation.empty()) outcome_.violation = what;
  note("WRONG: " + what);
}

void World::on_installed(int index, uint64_t from, const Decision& decision) {
  const Process& one = process(index);
  note("process " + std::to_string(index) + " installs generation " +
       std::to_string(decision.generation) + " of ballot " +
       std::to_string(decision.proposed.round) + "." + std::to_string(decision.proposed.rank) +
       ", " + std::to_string(decision.members.size()) + " members");
  if (const std::string wrong = lineages_.note(from, one.lineage(), decision); !wrong.empty())
    fail(wrong);
  lineages_.note_installed(one.lineage(), index);
  outcome_.last_installed = now();
  // The first op that not all who stay had finished.
  int64_t least = std::numeric_limits<int64_t>::max();
  for (uint32_t rank = 0; rank < decision.stay; ++rank) {
    const auto frozen = process(Process::index_of(decision.members[rank])).frozen(from);
    if (!frozen) return fail("a member stays that never ended its ops");
    least = std::min(least, *frozen);
  }
  if (least != decision.first_unfinished) fail("the first unfinished op is wrong");
  check_line(index);
}

void World::on_excluded(int index, uint64_t from, const Decision& decision) {
  note("process " + std::to_string(index) + " is excluded from generation " +
       std::to_string(decision.generation));
  if (const std::string wrong = lineages_.note(from, process(index).lineage(), decision);
      !wrong.empty())
    fail(wrong);
  check_line(index);
}

// One decision per generation: of all who live, one is as far as another, or behind it.
void World::check_line(int index) {
  const Process& one = process(index);
  for (const auto& other : processes_) {
    if (!other->alive || !other->is_member()) continue;
    if (!lineages_.on_one_line(one.lineage(), other->lineage()))
      fail("process " + std::to_string(index) + " and process " + std::to_string(other->index()) +
           " went on from the same generation by different decisions");
  }
}

void World::on_begun(int index) {
  Process& one = process(index);
  outcome_.last_begun = now();
  note("generation " + std::to_string(one.generations().generation().number) +
       " begins on process " + std::to_string(index));
  const Decision& decision = *lineages_.decision(one.lineage());
  for (uint32_t rank = 0; rank < decision.stay; ++rank) {
    const int member = Process::index_of(decision.members[rank]);
    if (!lineages_.has_installed(one.lineage(), member))
      fail("ops begin on process " + std::to_string(index) + " before process " +
           std::to_string(member) + " has installed the generation");
  }
  one.run_op();
}

// Nobody is given up who ran and could be reached.
void World::check_composed(int index, const Decision& decision) {
  const auto& members = process(index).generations().members();
  for (const Lost& lost : decision.lost) {
    const int member = Process::index_of(members[static_cast<size_t>(lost.rank)]);
    const std::string name = "process " + std::to_string(member);
    if (lost.cause == Lost::Cause::kDied) {
      if (process(member).alive) fail(name + " is said to have died");
    } else if (reach_.talk(index, member) &&
               wire_.now() - reach_.since(index, member) >= pace_.silence) {
      fail(name + " is given up, though it ran and could be reached");
    }
  }
}

// ---- the end
// --------------------------------------------------------------------------------------

// Of those who take part: whoever reaches one of them reaches all that that one does.
bool World::is_parted_cleanly() const {
  const auto takes_part = [](const auto& one) {
    return one->alive && !one->stopped && one->is_member() && !one->excluded();
  };
  for (const auto& a : processes_)
    for (const auto& b : processes_)
      for (const auto& c : processes_) {
        if (!takes_part(a) || !takes_part(b) || !takes_part(c) || a == c) continue;
        const int from = a->index(), over = b->index(), to = c->index();
        if (from != over && over != to && reach_.talk(from, over) && reach_.talk(over, to) &&
            !reach_.talk(from, to))
          return false;
      }
  return true;
}

std::string World::unsettled() {
  if (!counted_.empty() && wire_.next()) return "faults are to come";
  std::vector<bool> seen(processes_.size());
  for (const auto& one : processes_) {
    if (!one->alive || one->stopped || seen[static_cast<size_t>(one->index())]) continue;
    if (!one->is_member() || one->excluded()) continue;
    std::vector<int> together;
    for (const auto& other : processes_) {
      const int index = other->index();
      if (!other->alive || other->stopped || !other->is_member() || other->excluded()) continue;
      if (index != one->index() && !reach_.talk(one->index(), index)) continue;
      together.push_back(index);
      seen[static_cast<size_t>(index)] = true;
    }
    if (const std::string why = unsettled(together); !why.empty()) return why;
  }
  return "";
}

// Somebody whom it can ask: else it cannot hear that others went on, and goes nowhere.
bool World::knows_who_went_on(Process& one, const std::vector<int>& together) {
  for (const ProcessId member : one.generations().members()) {
    const int index = Process::index_of(member);
    if (std::find(together.begin(), together.end(), index) == together.end()) continue;
    if (lineages_.depth(process(index).lineage()) > lineages_.depth(one.lineage())) return true;
  }
  return false;
}

std::string World::unsettled(const std::vector<int>& together) {
  const Process* newest = nullptr;
  for (const int index : together) {
    const Process& one = process(index);
    if (!one.is_member() || one.excluded()) continue;
    if (!newest || lineages_.depth(one.lineage()) > lineages_.depth(newest->lineage()))
      newest = &one;
  }
  if (!newest) return "";
  const auto& members = process(newest->index()).generations().members();
  const bool whole = std::all_of(members.begin(), members.end(), [&](ProcessId member) {
    return std::find(together.begin(), together.end(), Process::index_of(member)) != together.end();
  });
  if (!whole)
    return has_quorum(together, *newest)
               ? "process " + std::to_string(newest->index()) + " has a quorum and does not go on"
               : "";
  for (const int index : together) {
    Process& one = process(index);
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

bool World::has_quorum(const std::vector<int>& together, const Process& newest) {
  const auto& members = process(newest.index()).generations().members();
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
      store = store || reaches_store(index);
    } else {
      gone += std::any_of(members.begin(), members.end(), [&](ProcessId other) {
        const int teller = Process::index_of(other);
        return is_here(teller) && told_[teller].contains(index);
      });
    }
  }
  return 2 * votes > size || (2 * votes == size && store) || votes + gone == size;
}

}  // namespace ringdist::membership
