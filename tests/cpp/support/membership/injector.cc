#include "support/membership/injector.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "support/membership/world.h"

namespace ringdist::membership {

void Injector::plan(const std::vector<Fault>& faults) {
  last_ = world_.now();
  for (const Fault& fault : faults) {
    if (fault.counts) {
      counted_.push_back(fault);
      continue;
    }
    last_ = std::max(last_, world_.now() + Milliseconds(fault.at + fault.lasts));
    world_.at(Milliseconds(fault.at), [this, fault] { apply(fault); });
  }
  std::stable_sort(counted_.begin(), counted_.end(),
                   [](const Fault& a, const Fault& b) { return a.at > b.at; });
}

void Injector::before_event(int64_t event) {
  while (!counted_.empty() && counted_.back().at <= event) {
    const Fault fault = counted_.back();
    counted_.pop_back();
    apply(fault);
  }
}

void Injector::note_fault() { last_ = std::max(last_, world_.now()); }

void Injector::apply(const Fault& fault) {
  world_.note(describe(fault));
  const Duration lasts = Milliseconds(fault.lasts);
  last_ = std::max(last_, world_.now() + lasts);
  switch (fault.kind) {
    case Fault::Kind::kKill:
      return world_.kill(fault.who);
    case Fault::Kind::kKillSending:
      world_.process(fault.who).sends_left = fault.other;
      return;
    case Fault::Kind::kStop:
      return stop(fault.who, lasts);
    case Fault::Kind::kCut:
      return cut(fault.who, fault.other, /*both=*/true, lasts);
    case Fault::Kind::kCutOneWay:
      return cut(fault.who, fault.other, /*both=*/false, lasts);
    case Fault::Kind::kStall:
      return world_.stall(fault.who, fault.other, lasts);
    case Fault::Kind::kDrop:
      return drop(fault.who, fault.other, lasts);
    case Fault::Kind::kLoseStore:
      return world_.stores().lose(0);
    case Fault::Kind::kShrink:
      return world_.in_process(fault.who, [this, fault] { world_.callers().shrink(fault.who); });
    case Fault::Kind::kJoin:
      return join(fault.who);
    case Fault::Kind::kGiveUp:
      return world_.in_process(fault.who, [this, fault] { give_up(fault.who, fault.other); });
  }
}

void Injector::give_up(int index, int other) {
  Process& one = world_.process(index);
  if (index == other || !one.is_member() || one.excluded()) return;
  one.generations().give_up(Process::id_of(other), world_.now());
  world_.callers().shrink(index);
}

void Injector::stop(int index, Duration lasts) {
  Process& one = world_.process(index);
  if (!one.alive || one.stopped) return;
  one.stopped = true;
  world_.wire().hold(index, true);
  world_.update_reach();
  if (lasts > Duration(0)) world_.at(lasts, [this, index] { resume(index); });
}

// Wakes a stopped process. It then reads the messages that arrived meanwhile, in order per sender.
// A timer may fire before them.
void Injector::resume(int index) {
  Process& one = world_.process(index);
  if (!one.alive || !one.stopped) return;
  world_.note("process " + std::to_string(index) + " wakes");
  one.stopped = false;
  world_.update_reach();
  for (const auto& other : world_.processes())
    if (world_.toss() && world_.toss()) world_.stall(other->index(), index, world_.drawn(0, 60));
  if (world_.toss())
    world_.in_process(index, [this, index] {
      if (world_.process(index).is_member()) world_.process(index).generations().tick(world_.now());
    });
  while (!one.inbox.empty() && one.alive && !one.stopped) {
    const World::Action action = std::move(one.inbox.front());
    one.inbox.pop_front();
    world_.in_process(index, action);
  }
  world_.wire().hold(index, false);
}

void Injector::cut(int from_host, int to_host, bool both, Duration lasts) {
  std::vector<std::pair<int, int>> ways{{from_host, to_host}};
  if (both) ways.push_back({to_host, from_host});
  for (const auto& [from, to] : ways)
    if (++cuts_[{from, to}] == 1) world_.wire().cut(from, to);
  world_.update_reach();
  if (lasts == Duration(0)) return;
  world_.at(lasts, [this, ways] {
    for (const auto& way : ways) {
      const auto held = cuts_.find(way);
      if (held == cuts_.end() || --held->second > 0) continue;
      cuts_.erase(held);
      world_.wire().heal(way.first, way.second);
    }
    world_.update_reach();
    world_.note("a cut is healed");
  });
}

void Injector::drop(int host, int other, Duration lasts) {
  for (const auto& way : {std::pair(host, other), std::pair(other, host)}) {
    ++drops_[way];
    world_.at(lasts, [this, way] {
      --drops_[way];
      world_.update_reach();
    });
  }
  world_.update_reach();
}

void Injector::restore() {
  world_.note("all cuts are healed, and all who are stopped wake");
  for (const auto& [way, held] : std::exchange(cuts_, {}))
    world_.wire().heal(way.first, way.second);
  for (const auto& one : world_.processes()) resume(one->index());
  world_.update_reach();
  note_fault();
}

// Adds a process that wants to join. It contacts some members, and at least one of them requests a
// generation with it.
void Injector::join(int host) {
  const int newcomer = world_.add_process(host);
  for (const auto& one : world_.processes())
    if (!one->alive && one->host() == host) world_.tell_death(newcomer, one->index());
  world_.update_reach();
  for (const auto& one : world_.processes()) {
    if (!one->alive || !one->is_member() || !world_.reach().talk(newcomer, one->index())) continue;
    const int index = one->index();
    world_.at(world_.drawn(1, 20), [this, index, newcomer] {
      world_.in_process(index, [this, index, newcomer] {
        world_.process(index).add_candidate(Process::id_of(newcomer));
        world_.callers().shrink(index);
      });
    });
  }
}

}  // namespace ringdist::membership
