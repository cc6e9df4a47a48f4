#include "support/membership/settling.h"

#include <algorithm>
#include <set>

#include "support/membership/world.h"

namespace ringdist::membership {

std::string Settling::open() { return first_open(/*promised=*/false); }
std::string Settling::broken() { return first_open(/*promised=*/true); }

std::string Settling::first_open(bool promised) {
  std::set<int> seen;
  for (const auto& one : world_.processes()) {
    if (!takes_part(one->index()) || seen.contains(one->index())) continue;
    const std::vector<int> together = reached_from(one->index());
    seen.insert(together.begin(), together.end());
    if (!all_talk(together)) {
      if (!promised) return "some reach each other over others only";
      continue;
    }
    if (const std::string why = open_of(together); !why.empty()) return why;
  }
  return "";
}

bool Settling::takes_part(int index) {
  Process& one = world_.process(index);
  return one.alive && !one.stopped && one.is_member() && !one.excluded();
}

// Returns the processes that `index` reaches directly or over other processes.
std::vector<int> Settling::reached_from(int index) {
  std::vector<int> out{index};
  for (size_t i = 0; i < out.size(); ++i)
    for (const auto& other : world_.processes()) {
      const int its = other->index();
      if (takes_part(its) && std::ranges::count(out, its) == 0 && world_.reach().talk(out[i], its))
        out.push_back(its);
    }
  return out;
}

bool Settling::all_talk(const std::vector<int>& together) {
  return std::ranges::all_of(together, [&](int a) {
    return std::ranges::all_of(together,
                               [&](int b) { return a == b || world_.reach().talk(a, b); });
  });
}

// True if a member of its generation is reachable and has a later generation. Otherwise the
// process has no member to query and stays in its generation.
bool Settling::knows_who_went_on(Process& one, const std::vector<int>& together) {
  for (const ProcessId member : one.generations().members()) {
    const int index = Process::index_of(member);
    if (std::find(together.begin(), together.end(), index) == together.end()) continue;
    if (lineages_.depth(world_.process(index).group_id()) > lineages_.depth(one.group_id()))
      return true;
  }
  return false;
}

std::string Settling::open_of(const std::vector<int>& together) {
  const Process* newest = nullptr;
  for (const int index : together) {
    const Process& one = world_.process(index);
    if (!one.is_member() || one.excluded()) continue;
    if (!newest || lineages_.depth(one.group_id()) > lineages_.depth(newest->group_id()))
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
    if (one.group_id() != newest->group_id() && !knows_who_went_on(one, together)) continue;
    if (one.group_id() != newest->group_id())
      return "process " + std::to_string(index) + " has not heard what was decided";
    if (one.generations().state() != GenerationLog::State::kBegun)
      return "the generation of process " + std::to_string(index) + " does not begin";
    if (one.frozen(one.group_id()))
      return "process " + std::to_string(index) + " waits for a decision";
  }
  return "";
}

bool Settling::has_quorum(const std::vector<int>& together, const Process& newest) {
  const auto& members = world_.process(newest.index()).generations().members();
  const auto size = static_cast<int>(members.size());
  int votes = 0,
      departed = 0;  // members in this set; members outside that were reported dead to one of them
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
      departed += std::any_of(members.begin(), members.end(), [&](ProcessId other) {
        const int teller = Process::index_of(other);
        return is_here(teller) && world_.was_told(teller, index);
      });
    }
  }
  return 2 * votes > size || (2 * votes == size && store) || votes + departed == size;
}

}  // namespace ringdist::membership
