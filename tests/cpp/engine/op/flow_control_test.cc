#include "engine/op/flow_control.h"

#include <gtest/gtest.h>

namespace ringdist {
namespace {

TEST(EagerCredit, HoldsTheWindowUntilTheReceiverHasConsumed) {
  EagerCredit sender(8192);
  EagerCredit receiver(8192);
  ASSERT_TRUE(sender.allows(4096));
  sender.sent(4096);
  ASSERT_TRUE(sender.allows(4096));
  sender.sent(4096);
  EXPECT_FALSE(sender.allows(0));
  receiver.consumed(4096);
  EXPECT_TRUE(receiver.must_report());
  EXPECT_TRUE(sender.returned(receiver.report()));
  EXPECT_FALSE(receiver.must_report());
  EXPECT_TRUE(sender.allows(4096));
}

TEST(EagerCredit, SmallMessagesAreCountedToo) {
  EagerCredit sender(2048);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(sender.allows(0));
    sender.sent(0);
  }
  EXPECT_FALSE(sender.allows(0));
}

TEST(EagerCredit, TheReceiverAcceptsWhatTheSenderMaySend) {
  EagerCredit receiver(8192);
  EXPECT_TRUE(receiver.arrived(4096));
  EXPECT_TRUE(receiver.arrived(4096));
  receiver.consumed(4096);
  EXPECT_TRUE(receiver.arrived(4096)) << "it may have heard of that";
  EXPECT_FALSE(receiver.arrived(0));
}

TEST(EagerCredit, TheReceiverAcceptsOneMessageOfAnySize) {
  EagerCredit receiver(1024);
  EXPECT_TRUE(receiver.arrived(4096));
  EXPECT_FALSE(receiver.arrived(0));
}

TEST(EagerCredit, OneMessageAlwaysFits) {
  EagerCredit sender(1024);
  EXPECT_TRUE(sender.allows(4096));
}

TEST(EagerCredit, OldOrImpossibleReportsChangeNothing) {
  EagerCredit sender(8192);
  sender.sent(4096);
  EXPECT_FALSE(sender.returned(0));
  EXPECT_FALSE(sender.returned(1 << 20));  // more than was ever sent
  EXPECT_EQ(sender.outstanding(), 4096);
}

TEST(GrantBudget, FitsUpToItsLimit) {
  GrantBudget budget(1000);
  EXPECT_TRUE(budget.fits(1000));
  budget.change(600);
  EXPECT_FALSE(budget.fits(401));
  budget.change(-600);
  EXPECT_EQ(budget.granted(), 0);
}

}  // namespace
}  // namespace ringdist
