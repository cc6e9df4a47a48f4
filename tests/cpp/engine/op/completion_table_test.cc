#include "engine/op/completion_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace ringdist {
namespace {

// Only their addresses matter.
OpExecution& run(int i) {
  static int64_t places[2];
  return reinterpret_cast<OpExecution&>(places[i]);
}

TEST(CompletionTable, ComeHomeOnceWithWhatTheyWereIssuedFor) {
  CompletionTable tickets;
  const SendId first = tickets.issue({&run(0), 1, 2, 3}, nullptr);
  const SendId second = tickets.issue({&run(1), 4, 5, 6}, nullptr);
  EXPECT_NE(first, kNoSendId);
  EXPECT_NE(first, second);
  EXPECT_EQ(tickets.out(), 2u);
  const auto home = tickets.complete(first);
  ASSERT_TRUE(home);
  EXPECT_EQ(home->what.run, &run(0));
  EXPECT_EQ(home->what.step, 1);
  EXPECT_EQ(home->what.target, 2);
  EXPECT_EQ(home->what.segment, 3);
  EXPECT_FALSE(tickets.complete(first));
  EXPECT_FALSE(tickets.complete(kNoSendId));
  const SendId third = tickets.issue({&run(0), 0, 0, 0}, nullptr);  // in the first one's place
  EXPECT_NE(third, first);
  EXPECT_FALSE(tickets.complete(first));
  EXPECT_TRUE(tickets.complete(third));
  EXPECT_TRUE(tickets.complete(second));
  EXPECT_EQ(tickets.out(), 0u);
}

// A place has been used four thousand million times.
TEST(CompletionTable, AreNeverNone) {
  CompletionTable tickets(std::numeric_limits<uint32_t>::max());
  const SendId send_id = tickets.issue({&run(0), 0, 0, 0}, nullptr);
  EXPECT_NE(send_id, kNoSendId);
  EXPECT_TRUE(tickets.complete(send_id));
  EXPECT_FALSE(tickets.complete(kNoSendId));
}

TEST(CompletionTable, HoldMemoryUntilTheyAreHome) {
  CompletionTable tickets;
  auto memory = std::make_shared<int>(0);
  const std::weak_ptr<int> held = memory;
  const SendId send_id = tickets.issue({&run(0), 0, 0, 0}, std::move(memory));
  const auto nobody = [](const SentSegment&, SendId) { FAIL() << "it has none on its way"; };
  tickets.orphan(run(1), nobody);
  std::vector<SendId> told;
  tickets.orphan(run(0), [&](const SentSegment&, SendId one) { told.push_back(one); });
  EXPECT_EQ(told, std::vector<SendId>{send_id});
  EXPECT_FALSE(held.expired());
  {
    const auto home = tickets.complete(send_id);
    ASSERT_TRUE(home);
    EXPECT_EQ(home->what.run, nullptr);
    EXPECT_FALSE(held.expired());
  }
  EXPECT_TRUE(held.expired());
  tickets.orphan(run(0), nobody);
}

TEST(CompletionTable, OfARunThatEndsAreNamed) {
  CompletionTable tickets;
  const SendId home = tickets.issue({&run(0), 0, 0, 0}, nullptr);
  const SendId first = tickets.issue({&run(0), 1, 2, 3}, nullptr);
  (void)tickets.issue({&run(1), 4, 4, 4}, nullptr);
  const SendId second = tickets.issue({&run(0), 5, 6, 7}, nullptr);
  (void)tickets.complete(home);
  std::vector<std::pair<SendId, int>> told;
  tickets.orphan(run(0), [&](const SentSegment& what, SendId send_id) {
    EXPECT_EQ(what.target, what.step + 1);
    EXPECT_EQ(what.segment, what.step + 2);
    told.emplace_back(send_id, what.step);
  });
  EXPECT_EQ(told, (std::vector<std::pair<SendId, int>>{{first, 1}, {second, 5}}));
}

}  // namespace
}  // namespace ringdist
