#include "support/membership/callers.h"

#include "support/membership/world.h"

namespace ringdist::membership {

void Callers::shrink(int index) {
  if (world_.process(index).is_member()) world_.process(index).generations().begin(world_.now());
}

void Callers::shrink_within(int index, int64_t most_ms) {
  world_.at(world_.drawn(0, most_ms), [this, index, group_id = world_.process(index).group_id()] {
    world_.in_process(index, [this, index, group_id] {
      if (world_.process(index).group_id() == group_id) shrink(index);
    });
  });
}

void Callers::detect(int index) {
  Process& one = world_.process(index);
  if (!one.is_member() || one.excluded()) return;
  bool lacks_one = false;
  for (const ProcessId member : one.generations().members()) {
    const int other = Process::index_of(member);
    if (other == index) continue;
    // Ops of this process fail if another member runs ops of a later generation.
    Process& its = world_.process(other);
    if (its.is_member() && its.generations().state() == GenerationLog::State::kBegun &&
        its.generations().generation().number > one.generations().generation().number)
      lacks_one = true;
    if (!world_.reach().talk(index, other)) lacks_one = true;
  }
  if (lacks_one) shrink(index);
}

void Callers::detect_within(int index, int64_t least_ms, int64_t most_ms) {
  world_.at(world_.drawn(least_ms, most_ms),
            [this, index] { world_.in_process(index, [this, index] { detect(index); }); });
}

void Callers::detect_all_soon() {
  for (const auto& one : world_.processes()) detect_within(one->index(), 0, 100);
}

}  // namespace ringdist::membership
