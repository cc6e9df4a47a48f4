// A part of what `make membership-sim` runs, and that the world is as it says.
#include <gtest/gtest.h>

#include "support/membership/shorten.h"
#include "support/membership/world.h"

namespace ringdist::membership {
namespace {

using Kind = Fault::Kind;

Scenario scenario_of(std::vector<int> hosts, std::vector<Fault> faults) {
  Scenario out;
  out.hosts = std::move(hosts);
  out.faults = std::move(faults);
  return out;
}

#ifdef RINGDIST_SANITIZED
constexpr int kFewer = 10;
#else
constexpr int kFewer = 1;
#endif

TEST(MembershipWorld, HoldsWhateverHappens) {
  for (uint64_t seed = 1; seed <= 3000 / kFewer; ++seed) {
    const Scenario scenario = draw(seed);
    EXPECT_EQ(World(scenario).run().violation, "") << describe(scenario);
  }
}

// Whom a control plane gives up is no member of what follows; two sets go on as little as before.
TEST(MembershipWorld, HoldsWhoeverIsGivenUp) {
  for (uint64_t seed = 1; seed <= 1000 / kFewer; ++seed) {
    const Scenario scenario = draw_giving_up(seed);
    EXPECT_EQ(World(scenario).run().violation, "") << describe(scenario);
  }
}

TEST(MembershipWorld, HoldsWithAnyTwoFaultsOfThree) {
  for (const Scenario& scenario : small_scenarios(16 * kFewer))
    EXPECT_EQ(World(scenario).run().violation, "") << describe(scenario);
}

TEST(MembershipWorld, TheSameScenarioTakesTheSameCourse) {
  for (const uint64_t seed : {3, 14, 15}) {
    const Outcome one = World(draw(seed)).run(), other = World(draw(seed)).run();
    EXPECT_EQ(one.events, other.events);
    EXPECT_EQ(one.messages, other.messages);
  }
}

// In the time of two answers and three ways, after the death is known: nobody waits for a silence.
TEST(MembershipWorld, ADeathOfManyIsDecidedSoon) {
  for (const int victim : {0, 100, 255}) {
    const Outcome outcome = World(one_death(256, victim), PaxosTimeouts{}).run();
    EXPECT_EQ(outcome.violation, "");
    EXPECT_LT(outcome.last_begun, Milliseconds(50));
    EXPECT_GT(outcome.last_begun, Duration(0));
  }
}

// With a rule that nothing can hold to, a run fails; and the shortest one is found.
TEST(MembershipWorld, ARunIsShortened) {
  const Fault kill{Kind::kKill, 10, false, 1, 0, 0};
  const Scenario long_one = scenario_of(
      {0, 0, 1, 1},
      {{Kind::kShrink, 1, false, 0, 0, 0}, kill, {Kind::kLoseStore, 5, false, 0, 0, 0}});
  const auto has_kill = [&](const Scenario& one) {
    return std::find(one.faults.begin(), one.faults.end(), kill) != one.faults.end();
  };
  const Scenario shortest = shorten(long_one, has_kill);
  EXPECT_EQ(shortest.faults, std::vector<Fault>{kill});
  EXPECT_EQ(shortest.hosts.size(), 2U);
}

}  // namespace
}  // namespace ringdist::membership
