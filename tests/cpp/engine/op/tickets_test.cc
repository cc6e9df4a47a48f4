#include "engine/op/tickets.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace ringdist {
namespace {

// Only their addresses matter.
Run& run(int i) {
  static int64_t places[2];
  return reinterpret_cast<Run&>(places[i]);
}

TEST(Tickets, ComeHomeOnceWithWhatTheyWereIssuedFor) {
  Tickets tickets;
  const Ticket first = tickets.issue({&run(0), 1, 2, 3}, nullptr);
  const Ticket second = tickets.issue({&run(1), 4, 5, 6}, nullptr);
  EXPECT_NE(first, kNoTicket);
  EXPECT_NE(first, second);
  EXPECT_EQ(tickets.out(), 2u);
  const auto home = tickets.redeem(first);
  ASSERT_TRUE(home);
  EXPECT_EQ(home->what.run, &run(0));
  EXPECT_EQ(home->what.step, 1);
  EXPECT_EQ(home->what.target, 2);
  EXPECT_EQ(home->what.segment, 3);
  EXPECT_FALSE(tickets.redeem(first));
  EXPECT_FALSE(tickets.redeem(kNoTicket));
  const Ticket third = tickets.issue({&run(0), 0, 0, 0}, nullptr);  // in the first one's place
  EXPECT_NE(third, first);
  EXPECT_FALSE(tickets.redeem(first));
  EXPECT_TRUE(tickets.redeem(third));
  EXPECT_TRUE(tickets.redeem(second));
  EXPECT_EQ(tickets.out(), 0u);
}

// A place has been used four thousand million times.
TEST(Tickets, AreNeverNone) {
  Tickets tickets(std::numeric_limits<uint32_t>::max());
  const Ticket ticket = tickets.issue({&run(0), 0, 0, 0}, nullptr);
  EXPECT_NE(ticket, kNoTicket);
  EXPECT_TRUE(tickets.redeem(ticket));
  EXPECT_FALSE(tickets.redeem(kNoTicket));
}

TEST(Tickets, HoldMemoryUntilTheyAreHome) {
  Tickets tickets;
  auto memory = std::make_shared<int>(0);
  const std::weak_ptr<int> held = memory;
  const Ticket ticket = tickets.issue({&run(0), 0, 0, 0}, std::move(memory));
  const auto nobody = [](const SentSegment&, Ticket) { FAIL() << "it has none on its way"; };
  tickets.disown(run(1), nobody);
  std::vector<Ticket> told;
  tickets.disown(run(0), [&](const SentSegment&, Ticket one) { told.push_back(one); });
  EXPECT_EQ(told, std::vector<Ticket>{ticket});
  EXPECT_FALSE(held.expired());
  {
    const auto home = tickets.redeem(ticket);
    ASSERT_TRUE(home);
    EXPECT_EQ(home->what.run, nullptr);
    EXPECT_FALSE(held.expired());
  }
  EXPECT_TRUE(held.expired());
  tickets.disown(run(0), nobody);
}

TEST(Tickets, OfARunThatEndsAreNamed) {
  Tickets tickets;
  const Ticket home = tickets.issue({&run(0), 0, 0, 0}, nullptr);
  const Ticket first = tickets.issue({&run(0), 1, 2, 3}, nullptr);
  (void)tickets.issue({&run(1), 4, 4, 4}, nullptr);
  const Ticket second = tickets.issue({&run(0), 5, 6, 7}, nullptr);
  (void)tickets.redeem(home);
  std::vector<std::pair<Ticket, int>> told;
  tickets.disown(run(0), [&](const SentSegment& what, Ticket ticket) {
    EXPECT_EQ(what.target, what.step + 1);
    EXPECT_EQ(what.segment, what.step + 2);
    told.emplace_back(ticket, what.step);
  });
  EXPECT_EQ(told, (std::vector<std::pair<Ticket, int>>{{first, 1}, {second, 5}}));
}

}  // namespace
}  // namespace ringdist
