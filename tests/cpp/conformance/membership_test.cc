// Runs a part of `make membership-sim`, and tests the simulated world itself.
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

// A member that a control plane declares lost need not be in the next generation. Even so, two
// sets of members must never both continue.
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

// Agreement takes two replies and three one-way delays after the death is detected. No process
// waits for a timeout.
TEST(MembershipWorld, ADeathOfManyIsDecidedSoon) {
  for (const int victim : {0, 100, 255}) {
    const Outcome outcome = World(one_death(256, victim), PaxosTimeouts{}).run();
    EXPECT_EQ(outcome.violation, "");
    EXPECT_LT(outcome.last_begun, Milliseconds(50));
    EXPECT_GT(outcome.last_begun, Duration(0));
  }
}

// Under an invariant that cannot hold, a run fails and its scenario is minimized.
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
