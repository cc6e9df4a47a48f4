#include "engine/op/tickets.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

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
  tickets.disown(run(1));
  tickets.disown(run(0));
  EXPECT_FALSE(held.expired());
  {
    const auto home = tickets.redeem(ticket);
    ASSERT_TRUE(home);
    EXPECT_EQ(home->what.run, nullptr);
    EXPECT_FALSE(held.expired());
  }
  EXPECT_TRUE(held.expired());
}

}  // namespace
}  // namespace ringdist
