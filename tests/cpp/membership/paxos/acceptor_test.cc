#include <gtest/gtest.h>

#include "membership/paxos/decision.h"

namespace ringdist {
namespace {

Decision value_of(uint32_t round) {
  Decision out;
  out.generation = 1;
  out.proposed = {round, 0};
  out.members = {1};
  out.survivor_count = 1;
  return out;
}

TEST(Acceptor, KeepsToItsLatestPromise) {
  Acceptor acceptor;
  EXPECT_TRUE(acceptor.promise({2, 1}));
  EXPECT_FALSE(acceptor.promise({2, 0}));
  EXPECT_FALSE(acceptor.promise({1, 5}));
  EXPECT_TRUE(acceptor.promise({2, 1})) << "the same again: its answer was lost";
  EXPECT_EQ(acceptor.promised(), (Ballot{2, 1}));
}

TEST(Acceptor, AcceptsWhatIsNotOlderThanItsPromise) {
  Acceptor acceptor;
  acceptor.promise({2, 1});
  EXPECT_FALSE(acceptor.accept({1, 0}, value_of(1)));
  EXPECT_FALSE(acceptor.accepted().has_value());
  EXPECT_TRUE(acceptor.accept({3, 0}, value_of(3)));
  EXPECT_EQ(acceptor.promised(), (Ballot{3, 0})) << "to accept is to promise";
  EXPECT_EQ(acceptor.accepted()->value, value_of(3));
}

TEST(Acceptor, LearnsWhatWasDecidedUnlessItAcceptedSomethingElseSince) {
  Acceptor acceptor;
  EXPECT_TRUE(acceptor.may_learn({1, 0}, value_of(1)));
  acceptor.promise({5, 0});
  EXPECT_TRUE(acceptor.may_learn({1, 0}, value_of(1))) << "a promise decides nothing";
  acceptor.accept({5, 0}, value_of(5));
  EXPECT_FALSE(acceptor.may_learn({1, 0}, value_of(1)));
  EXPECT_TRUE(acceptor.may_learn({1, 0}, value_of(5))) << "the same value";
  EXPECT_TRUE(acceptor.may_learn({5, 0}, value_of(1))) << "as of a ballot that is as late";
}

}  // namespace
}  // namespace ringdist
