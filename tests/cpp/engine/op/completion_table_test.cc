#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "engine/op/progress_state.h"

namespace ringdist {
namespace {

// Only the addresses matter.
OpExecution& run(int i) {
  static int64_t places[2];
  return reinterpret_cast<OpExecution&>(places[i]);
}

TEST(CompletionTable, ComeHomeOnceWithWhatTheyWereIssuedFor) {
  CompletionTable table;
  const SendId first = table.issue({&run(0), 1, 2, 3}, nullptr);
  const SendId second = table.issue({&run(1), 4, 5, 6}, nullptr);
  EXPECT_NE(first, kNoSendId);
  EXPECT_NE(first, second);
  EXPECT_EQ(table.out(), 2u);
  const auto home = table.complete(first);
  ASSERT_TRUE(home);
  EXPECT_EQ(home->what.run, &run(0));
  EXPECT_EQ(home->what.step, 1);
  EXPECT_EQ(home->what.target, 2);
  EXPECT_EQ(home->what.segment, 3);
  EXPECT_FALSE(table.complete(first));
  EXPECT_FALSE(table.complete(kNoSendId));
  const SendId third = table.issue({&run(0), 0, 0, 0}, nullptr);  // reuses the first one's place
  EXPECT_NE(third, first);
  EXPECT_FALSE(table.complete(first));
  EXPECT_TRUE(table.complete(third));
  EXPECT_TRUE(table.complete(second));
  EXPECT_EQ(table.out(), 0u);
}

// A place has been used 2^32 times.
TEST(CompletionTable, AreNeverNone) {
  CompletionTable table(std::numeric_limits<uint32_t>::max());
  const SendId send_id = table.issue({&run(0), 0, 0, 0}, nullptr);
  EXPECT_NE(send_id, kNoSendId);
  EXPECT_TRUE(table.complete(send_id));
  EXPECT_FALSE(table.complete(kNoSendId));
}

TEST(CompletionTable, HoldMemoryUntilTheyAreHome) {
  CompletionTable table;
  auto memory = std::make_shared<int>(0);
  const std::weak_ptr<int> held = memory;
  const SendId send_id = table.issue({&run(0), 0, 0, 0}, std::move(memory));
  const auto nobody = [](const SentSegment&, SendId) { FAIL() << "it has none on its way"; };
  table.orphan(run(1), nobody);
  std::vector<SendId> told;
  table.orphan(run(0), [&](const SentSegment&, SendId one) { told.push_back(one); });
  EXPECT_EQ(told, std::vector<SendId>{send_id});
  EXPECT_FALSE(held.expired());
  {
    const auto home = table.complete(send_id);
    ASSERT_TRUE(home);
    EXPECT_EQ(home->what.run, nullptr);
    EXPECT_FALSE(held.expired());
  }
  EXPECT_TRUE(held.expired());
  table.orphan(run(0), nobody);
}

TEST(CompletionTable, OfARunThatEndsAreNamed) {
  CompletionTable table;
  const SendId home = table.issue({&run(0), 0, 0, 0}, nullptr);
  const SendId first = table.issue({&run(0), 1, 2, 3}, nullptr);
  (void)table.issue({&run(1), 4, 4, 4}, nullptr);
  const SendId second = table.issue({&run(0), 5, 6, 7}, nullptr);
  (void)table.complete(home);
  std::vector<std::pair<SendId, int>> told;
  table.orphan(run(0), [&](const SentSegment& what, SendId send_id) {
    EXPECT_EQ(what.target, what.step + 1);
    EXPECT_EQ(what.segment, what.step + 2);
    told.emplace_back(send_id, what.step);
  });
  EXPECT_EQ(told, (std::vector<std::pair<SendId, int>>{{first, 1}, {second, 5}}));
}

}  // namespace
}  // namespace ringdist
