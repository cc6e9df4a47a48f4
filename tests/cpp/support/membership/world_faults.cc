// What is done to a world.
#include <algorithm>
#include <utility>

#include "support/membership/world.h"

namespace ringdist::membership {

void World::plan(const Fault& fault) {
  if (fault.counts) {
    counted_.push_back(fault);
    return;
  }
  const TimePoint when = Wire::kStart + Milliseconds(fault.at);
  last_fault_ = std::max(last_fault_, when + Milliseconds(fault.lasts));
  at(Milliseconds(fault.at), [this, fault] { apply(fault); });
}

void World::apply(const Fault& fault) {
  note(describe(fault));
  const Duration lasts = Milliseconds(fault.lasts);
  last_fault_ = std::max(last_fault_, wire_.now() + lasts);
  switch (fault.kind) {
    case Fault::Kind::kKill:
      return kill(fault.who);
    case Fault::Kind::kKillSending:
      process(fault.who).sends_left = fault.other;
      return;
    case Fault::Kind::kStop:
      return stop(fault.who, lasts);
    case Fault::Kind::kCut:
      return cut(fault.who, fault.other, /*both=*/true, lasts);
    case Fault::Kind::kCutOneWay:
      return cut(fault.who, fault.other, /*both=*/false, lasts);
    case Fault::Kind::kLoseStore:
      return stores_.lose(0);
    case Fault::Kind::kShrink:
      return in_process(fault.who, [this, fault] { shrink(fault.who); });
    case Fault::Kind::kJoin:
      return join(fault.who);
  }
}

// What it had sent inside its host is there all the same, and the kernel tells of the death after
// that; of what was for other hosts an end is lost, at random.
void World::kill(int index) {
  Process& one = process(index);
  if (!one.alive) return;
  one.alive = false;
  note("process " + std::to_string(index) + " dies");
  if (one.stopped) wire_.hold(index, false);  // what it had sent, the kernel has
  std::map<int, bool> lost;                   // by receiver: from here on
  for (auto& [id, message] : on_its_way_) {
    if (message.from != index || process(message.to).host() == one.host()) continue;
    bool& rest = lost[message.to];
    rest = rest || random_() % 2 == 0;
    message.lost = rest;
  }
  stores_.lose_of(index);
  update_reach();
  for (const auto& other : processes_) {
    if (!other->alive || other->index() == index) continue;
    if (other->host() == one.host()) {
      put_on_wire(index, other->index(), {});
    } else {
      shrink_within(other->index(), scenario_.told);  // hears of it by the control plane
    }
  }
  last_fault_ = std::max(last_fault_, wire_.now());
}

void World::stop(int index, Duration lasts) {
  Process& one = process(index);
  if (!one.alive || one.stopped) return;
  one.stopped = true;
  wire_.hold(index, true);
  update_reach();
  if (lasts > Duration(0)) at(lasts, [this, index] { resume(index); });
}

// What came meanwhile is read in order, but a timer may have its turn first.
void World::resume(int index) {
  Process& one = process(index);
  if (!one.alive || !one.stopped) return;
  note("process " + std::to_string(index) + " wakes");
  one.stopped = false;
  update_reach();
  if (random_() % 2 == 0)
    in_process(index, [this, index] {
      if (process(index).is_member()) process(index).generations().tick(wire_.now());
    });
  while (!one.inbox.empty() && one.alive && !one.stopped) {
    const Action action = std::move(one.inbox.front());
    one.inbox.pop_front();
    in_process(index, action);
  }
  wire_.hold(index, false);
}

void World::cut(int from_host, int to_host, bool both, Duration lasts) {
  std::vector<std::pair<int, int>> ways{{from_host, to_host}};
  if (both) ways.push_back({to_host, from_host});
  for (const auto& [from, to] : ways)
    if (++cuts_[{from, to}] == 1) wire_.cut(from, to);
  update_reach();
  if (lasts == Duration(0)) return;
  at(lasts, [this, ways] {
    for (const auto& way : ways) {
      const auto held = cuts_.find(way);
      if (--held->second > 0) continue;
      cuts_.erase(held);
      wire_.heal(way.first, way.second);
    }
    update_reach();
    note("a cut is healed");
  });
}

// It tells some members; one of them, at least, asks for a generation with it.
void World::join(int host) {
  const int newcomer = add_process(host);
  update_reach();
  for (const auto& one : processes_) {
    if (!one->alive || !one->is_member() || !reach_.talk(newcomer, one->index())) continue;
    const int index = one->index();
    at(drawn(1, 20), [this, index, newcomer] {
      in_process(index, [this, index, newcomer] {
        process(index).add_candidate(Process::id_of(newcomer));
        shrink(index);
      });
    });
  }
}

void World::shrink(int index) {
  if (process(index).is_member()) process(index).generations().begin(wire_.now());
}

void World::shrink_within(int index, int64_t most_ms) {
  at(drawn(0, most_ms), [this, index, lineage = process(index).lineage()] {
    in_process(index, [this, index, lineage] {
      if (process(index).lineage() == lineage) shrink(index);
    });
  });
}

void World::detect_later() {
  for (const auto& one : processes_) {
    const int index = one->index();
    at(drawn(0, 100), [this, index] { in_process(index, [this, index] { detect(index); }); });
  }
}

void World::detect(int index) {
  Process& one = process(index);
  if (!one.is_member() || one.excluded()) return;
  bool lacks_one = false;
  for (const ProcessId member : one.generations().members()) {
    const int other = Process::index_of(member);
    if (other == index || reach_.talk(index, other)) continue;
    lacks_one = true;
    if (wire_.now() - reach_.since(index, other) >= pace_.silence)
      one.generations().suspect(member);
  }
  if (lacks_one) shrink(index);
}

void World::update_reach() {
  reach_.update(wire_.now(), [this](int a, int b) {
    const Process &one = process(a), &other = process(b);
    return one.alive && other.alive && !one.stopped && !other.stopped &&
           !is_cut(one.host(), other.host()) && !is_cut(other.host(), one.host());
  });
  // The control plane finds it out.
  for (const auto& one : processes_) {
    const int index = one->index();
    at(pace_.silence + drawn(0, 100),
       [this, index] { in_process(index, [this, index] { detect(index); }); });
  }
}

}  // namespace ringdist::membership
