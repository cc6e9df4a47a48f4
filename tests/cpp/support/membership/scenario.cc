#include "support/membership/scenario.h"

#include <algorithm>
#include <random>

namespace ringdist::membership {
namespace {

using Kind = Fault::Kind;

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  // Returns a random number from `least` to `most`, both included.
  int64_t roll(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1));
  }
  int pick(int64_t count) { return static_cast<int>(roll(0, count - 1)); }
  bool chance(int percent) { return roll(1, 100) <= percent; }

 private:
  std::mt19937_64 random_;
};

bool is_of_hosts(Kind kind) {
  return kind == Kind::kCut || kind == Kind::kCutOneWay || kind == Kind::kDrop;
}

Fault draw_fault(Dice& dice, int ranks, int hosts) {
  static constexpr Kind kKinds[] = {
      Kind::kStall,     Kind::kStall,  Kind::kStall,       Kind::kDrop,

      Kind::kKill,      Kind::kKill,   Kind::kKillSending, Kind::kKillSending, Kind::kStop,
      Kind::kStop,      Kind::kStop,   Kind::kCut,         Kind::kCut,         Kind::kCutOneWay,
      Kind::kLoseStore, Kind::kShrink, Kind::kShrink,      Kind::kJoin,        Kind::kJoin};
  Fault out;
  out.kind = kKinds[dice.pick(std::size(kKinds))];
  // Most faults happen during the agreement, some long afterwards.
  out.at = dice.chance(70) ? dice.roll(0, 150) : dice.roll(0, 4000);
  out.who = dice.pick(ranks);
  if (out.kind == Kind::kKillSending) out.other = dice.pick(3 * ranks);
  if (out.kind == Kind::kStop || out.kind == Kind::kCut || out.kind == Kind::kCutOneWay)
    out.lasts = dice.chance(30) ? 0 : dice.chance(50) ? dice.roll(1, 300) : dice.roll(300, 4000);
  if (out.kind == Kind::kStall) {
    out.other = dice.pick(ranks);
    out.lasts = dice.chance(50) ? dice.roll(1, 100) : dice.roll(100, 3000);
  }
  if (out.kind == Kind::kJoin) out.who = dice.pick(hosts);
  if (out.kind == Kind::kDrop) out.lasts = dice.roll(100, 2000);
  if (is_of_hosts(out.kind)) {
    out.who = dice.pick(hosts);
    out.other = (out.who + 1 + dice.pick(hosts - 1)) % hosts;
  }
  return out;
}

std::string when(const Fault& fault) {
  return fault.counts ? "before event " + std::to_string(fault.at)
                      : "at " + std::to_string(fault.at) + " ms";
}

std::string lasting(const Fault& fault) {
  return fault.lasts == 0 ? " for ever" : " for " + std::to_string(fault.lasts) + " ms";
}

// A majority decides without three members. Two of this majority die with the value that they
// accepted, and the other two are cut off. Then the three others meet.
void lose_a_decided_majority(Dice& dice, Scenario& out) {
  out.hosts = {0, 0, 1, 1, 1, 2, 3};
  out.latency = dice.roll(2, 15);
  out.jitter = dice.roll(5, 40);
  const auto healed = dice.roll(1100, 1500);
  out.faults = {{Kind::kShrink, dice.roll(0, 10), false, 0, 0, 0},
                {Kind::kStop, 0, false, 4, 0, dice.roll(1000, 1400)},
                {Kind::kCut, dice.roll(1020, 1140), false, 0, 1, 0},
                {Kind::kKill, dice.roll(1040, 1180), false, 2, 0, 0},
                {Kind::kKill, dice.roll(1040, 1180), false, 3, 0, 0}};
  // Until then the run goes on. The three need that long to wait for the two that are cut off.
  out.faults.push_back({Kind::kShrink, dice.roll(3000, 6000), false, 4, 0, 0});
  for (const int host : {2, 3}) {
    out.faults.push_back({Kind::kCut, 0, false, host, 1, healed});
    out.faults.push_back({Kind::kCut, 0, false, host, 0, 0});
  }
}

// Two members decide without a stopped one and then die, while a newcomer that they admitted
// continues. Then the stopped member wakes.
void leave_it_to_a_newcomer(Dice& dice, Scenario& out) {
  out.hosts = {0, 0, 0};
  out.faults = {
      {Kind::kStop, dice.roll(0, 5), false, 2, 0, dice.roll(2500, 5000)},
      {Kind::kJoin, dice.roll(5, 30), false, 0, 0, 0},
      {Kind::kKillSending, dice.roll(0, 1200), false, 0, static_cast<int>(dice.roll(0, 40)), 0},
      {Kind::kKill, dice.roll(1000, 2500), false, 1, 0, 0}};
}

// The proposer dies while it announces the decision, together with all members that accepted it.
// The stopped members wake and decide.
void lose_all_who_accepted(Dice& dice, Scenario& out) {
  out.hosts = {1, 0, 0, 0, 0};
  out.jitter = dice.roll(0, 100);
  out.faults = {
      {Kind::kShrink, dice.roll(5, 20), false, 1, 0, 0},
      {Kind::kStop, dice.roll(0, 5), false, 0, 0, dice.roll(1000, 1400)},
      {Kind::kStop, dice.roll(0, 5), false, 4, 0, dice.roll(1000, 1400)},
      {Kind::kKillSending, dice.roll(900, 1100), false, 1, static_cast<int>(dice.roll(0, 20)), 0},
      {Kind::kKill, dice.roll(1000, 1200), false, 2, 0, 0},
      {Kind::kKill, dice.roll(1000, 1200), false, 3, 0, 0}};
}

// Two halves cannot reach each other, but both reach the store.
void halve(Dice& dice, Scenario& out) {
  const auto half = dice.roll(1, 3);
  out.hosts.assign(static_cast<size_t>(half), 0);
  out.hosts.resize(static_cast<size_t>(2 * half), 1);
  out.store_host = 2;
  out.faults = {
      {Kind::kShrink, dice.roll(0, 40), false, 0, 0, 0},
      {Kind::kCut, dice.roll(0, 40), false, 0, 1, dice.chance(50) ? 0 : dice.roll(900, 3000)},
      {Kind::kKillSending, dice.roll(0, 1200), false, dice.pick(2 * half),
       static_cast<int>(dice.roll(0, 40)), 0}};
}

Scenario draw_hard(uint64_t seed, Dice& dice) {
  static constexpr void (*kPatterns[])(Dice&, Scenario&) = {
      lose_a_decided_majority, leave_it_to_a_newcomer, lose_all_who_accepted, halve};
  Scenario out;
  out.seed = seed;
  out.latency = dice.roll(0, 5);
  kPatterns[dice.pick(std::size(kPatterns))](dice, out);
  return out;
}

}  // namespace

Scenario draw(uint64_t seed) {
  Dice dice(seed);
  if (dice.chance(20)) return draw_hard(seed, dice);
  Scenario out;
  out.seed = seed;
  const auto ranks = static_cast<int>(dice.roll(2, 9));
  const auto hosts = static_cast<int>(dice.roll(1, std::min(ranks, 4)));
  for (int rank = 0; rank < ranks; ++rank)
    out.hosts.push_back(rank < hosts ? rank : dice.pick(hosts));
  if (dice.chance(50)) out.store_process = 0;
  if (dice.chance(20)) out.store_host = hosts;
  if (out.store_host > 0) out.store_process = -1;
  out.latency = dice.roll(0, 5);
  out.jitter = dice.chance(50) ? dice.roll(1, 30) : 0;
  out.rough = dice.chance(50);
  const auto faults = dice.roll(1, 6);
  while (static_cast<int64_t>(out.faults.size()) < faults) {
    const Fault fault = draw_fault(dice, ranks, std::max(hosts, 2));
    if (!is_of_hosts(fault.kind) || hosts > 1) out.faults.push_back(fault);
  }
  return out;
}

Scenario draw_giving_up(uint64_t seed) {
  Scenario out = draw(seed);
  Dice dice(seed ^ 0x61766573);
  const auto ranks = static_cast<int64_t>(out.hosts.size());
  for (int64_t left = dice.roll(1, 4); left > 0; --left)
    out.faults.push_back({Kind::kGiveUp, dice.chance(70) ? dice.roll(0, 150) : dice.roll(0, 4000),
                          false, dice.pick(ranks), dice.pick(ranks), 0});
  return out;
}

bool gives_up(const Scenario& scenario) {
  return std::ranges::any_of(scenario.faults,
                             [](const Fault& one) { return one.kind == Kind::kGiveUp; });
}

namespace {

// Events of a run of three members that loses no member. Later events do not exist, so a fault
// there would disturb nothing.
constexpr int64_t kEvents = 64;
constexpr int64_t kMessages = 12;  // messages that one member sends in such a run

std::vector<Fault> single_faults(const std::vector<int>& layout, int64_t stride) {
  std::vector<Fault> out;
  const int hosts = 1 + *std::max_element(layout.begin(), layout.end());
  for (int who = 0; who < 3; ++who)
    for (int64_t sent = 0; sent < kMessages; sent += stride)
      out.push_back({Kind::kKillSending, 0, true, who, static_cast<int>(sent), 0});
  for (int64_t event = 0; event < kEvents; event += stride) {
    out.push_back({Kind::kLoseStore, event, true, 0, 0, 0});
    for (int who = 0; who < 3; ++who) {
      out.push_back({Kind::kKill, event, true, who, 0, 0});
      for (const int64_t lasts : {0, 400}) out.push_back({Kind::kStop, event, true, who, 0, lasts});
    }
    for (int from = 0; from < hosts; ++from)
      for (int to = 0; to < hosts; ++to)
        for (const int64_t lasts : {0, 400}) {
          if (from < to) out.push_back({Kind::kCut, event, true, from, to, lasts});
          if (from != to) out.push_back({Kind::kCutOneWay, event, true, from, to, lasts});
        }
  }
  return out;
}

}  // namespace

std::vector<Scenario> small_scenarios(int64_t stride) {
  std::vector<Scenario> out;
  for (const auto& layout : {std::vector<int>{0, 0, 0}, {0, 0, 1}, {0, 1, 2}}) {
    const auto faults = single_faults(layout, stride);
    for (size_t first = 0; first < faults.size(); ++first)
      for (size_t second = first; second < faults.size(); ++second) {
        Scenario one;
        one.hosts = layout;
        one.faults = {{Kind::kShrink, 0, false, 0, 0, 0}, {Kind::kShrink, 3, false, 2, 0, 0}};
        one.faults.push_back(faults[first]);
        if (second > first) one.faults.push_back(faults[second]);
        out.push_back(std::move(one));
      }
  }
  return out;
}

Scenario one_death(int members, int victim) {
  Scenario out;
  for (int rank = 0; rank < members; ++rank) out.hosts.push_back(rank / 8);
  out.told = 5;
  out.faults.push_back({Kind::kKill, 0, false, victim, 0, 0});
  return out;
}

std::string describe(const Fault& fault) {
  const std::string who = std::to_string(fault.who), other = std::to_string(fault.other);
  switch (fault.kind) {
    case Kind::kKill:
      return when(fault) + ": process " + who + " is killed";
    case Kind::kKillSending:
      return when(fault) + ": process " + who + " is to be killed after " + other +
             " more messages";
    case Kind::kStop:
      return when(fault) + ": process " + who + " is stopped" + lasting(fault);
    case Kind::kCut:
      return when(fault) + ": hosts " + who + " and " + other + " are cut apart" + lasting(fault);
    case Kind::kCutOneWay:
      return when(fault) + ": nothing gets from host " + who + " to host " + other + lasting(fault);
    case Kind::kStall:
      return when(fault) + ": what process " + who + " sends to process " + other + " is late" +
             lasting(fault);
    case Kind::kDrop:
      return when(fault) + ": a third of what hosts " + who + " and " + other +
             " send to each other is lost" + lasting(fault);
    case Kind::kLoseStore:
      return when(fault) + ": the store is lost";
    case Kind::kShrink:
      return when(fault) + ": process " + who + " calls shrink";
    case Kind::kJoin:
      return when(fault) + ": a process on host " + who + " asks to join";
    case Kind::kGiveUp:
      return when(fault) + ": process " + who + " gives up process " + other;
  }
  return "?";
}

std::string describe(const Scenario& scenario) {
  std::string out = "seed " + std::to_string(scenario.seed) + ", hosts of the members:";
  for (const int host : scenario.hosts) out += " " + std::to_string(host);
  out += "; the store is " + (scenario.store_process < 0
                                  ? "another process of host " + std::to_string(scenario.store_host)
                                  : "process " + std::to_string(scenario.store_process));
  out += "; latency " + std::to_string(scenario.latency) + " ms + up to " +
         std::to_string(scenario.jitter) + (scenario.rough ? " ms; rough\n" : " ms\n");
  for (const Fault& fault : scenario.faults) out += "  " + describe(fault) + "\n";
  return out;
}

}  // namespace ringdist::membership
