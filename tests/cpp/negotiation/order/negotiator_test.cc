#include "negotiation/order/negotiator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/negotiation.h"

namespace ringdist {
namespace {

TEST(Negotiator, ARankAloneNeedsNobody) {
  NegotiatorWorld ranks(Topology::one_host(1), 0);
  ranks[0].call("a", described("sum"));
  ranks[0].flush();
  EXPECT_EQ(ranks[0].log, std::vector<std::string>{"run a=sum"});
}

TEST(Negotiator, NamesBothSidesOfADisagreement) {
  NegotiatorWorld ranks(Topology::one_host(3), 0);
  for (int rank = 0; rank < 3; ++rank) ranks[rank].call("a", described(rank == 2 ? "max" : "sum"));
  ranks.settle();
  ranks.expect_same_course();
  const std::string& said = ranks[0].log.at(0);
  EXPECT_TRUE(said.ends_with("called sum, rank 2 called max") ||
              said.starts_with("fail a: rank 2 called max, "))
      << said;
}

TEST(Negotiator, WaitsForTheLastRank) {
  NegotiatorWorld ranks(Topology::one_host(6), 0);
  for (int rank = 0; rank < 5; ++rank) ranks[rank].call("a", described("sum"));
  ranks.settle();
  EXPECT_TRUE(ranks[0].log.empty());
  ranks[5].call("a", described("sum"));
  ranks.settle();
  ranks.expect_same_course();
  EXPECT_EQ(ranks[0].log.size(), 1u);
}

TEST(Negotiator, WhatBecomesReadyMeanwhileGoesTogether) {
  NegotiatorOptions options;
  options.batches_in_flight = 1;
  options.fusion_bytes = 30;
  NegotiatorWorld ranks(Topology::one_host(1), 0, options);
  NegotiatorRank& one = ranks[0];
  for (const char* name : {"a", "b", "c", "d", "e", "other"}) {
    one.call(name, described("sum", std::string(name) == "other" ? 2 : 1, 10));
    one.flush();
  }
  one.call("alone", described("sum", 0, 10));
  one.call("long", described("sum", 1, 100));
  one.flush();
  for (; one.running > 0; --one.running) {
    one.finish_one();
    one.flush();
  }
  EXPECT_EQ(one.log, (std::vector<std::string>{"run a=sum", "run b=sum c=sum d=sum", "run e=sum",
                                               "run other=sum", "run alone=sum", "run long=sum"}));
}

TEST(Negotiator, TheRootMayChangeWhatTravelsTogether) {
  NegotiatorOptions options;
  options.batches_in_flight = 1;
  options.fusion_bytes = 10;
  NegotiatorWorld ranks(Topology::one_host(1), 0, options);
  NegotiatorRank& one = ranks[0];
  const auto call = [&one](std::initializer_list<const char*> names) {
    for (const char* name : names) one.call(name, described("sum", 1, 10));
    one.flush();
  };
  call({"a", "b"});
  one.negotiator().tune(100, 2);
  call({"c"});
  EXPECT_EQ(one.log, (std::vector<std::string>{"run a=sum", "run b=sum c=sum"}));
}

// Each rank makes the calls in its own order, several at a time.
TEST(Negotiator, ManyCallsAtOnceNeedFewMessages) {
  constexpr int kCalls = 500, kAtATime = 25;
  NegotiatorWorld ranks(Topology::one_host(64), 1);
  for (const bool is_cached : {false, true}) {
    std::ranges::fill(ranks.messages, 0);
    for (int call = 0; call < kCalls; ++call)
      for (int rank = 0; rank < ranks.size(); ++rank) {
        const int mine = (call * 7 + rank * 13) % kCalls;
        ranks[rank].call("call " + std::to_string(mine), described("sum"));
        if ((call + 1) % kAtATime != 0) continue;
        ranks[rank].flush();
        ranks.step();
      }
    ranks.settle();
    ranks.expect_same_course();
    const int most = std::ranges::max(ranks.messages);
    RecordProperty(is_cached ? "cached" : "first", most);
    EXPECT_LE(most, 600);
  }
}

TEST(Negotiator, WhatNeedsAllRanksFailsWhereOneHasJoined) {
  NegotiatorWorld ranks(Topology::one_host(3), 0);
  CallDescription description = described("an allgather");
  description.needs_all = true;
  for (const bool call_is_first : {false, true}) {
    if (!call_is_first) ranks[2].join();
    for (int rank = 0; rank < 2; ++rank) {
      ranks[rank].call("a", description);
      ranks[rank].call("b", described("sum"));
    }
    ranks.settle();
    if (call_is_first) ranks[2].join();
    ranks.settle();
    for (int rank = 0; rank < 2; ++rank) ranks[rank].join();
    ranks.settle();
  }
  ranks.expect_same_course();
  EXPECT_EQ(ranks[0].times["b"], 2);
  EXPECT_EQ(ranks[0].failures["a"], 2);
  EXPECT_EQ(std::ranges::count(ranks[0].log,
                               "fail a: rank 2 has joined, and an allgather needs all ranks"),
            2);
}

// A rank sends its extras once, so they may exist only in the tables of other ranks.
TEST(Negotiator, ExtrasOutliveThatANameIsForgottenMeanwhile) {
  NegotiatorOptions options;
  options.cache_capacity = 1;
  NegotiatorWorld ranks(Topology::one_host(2), 0, options);
  const auto call = [&ranks](int rank, const std::string& name) {
    ranks[rank].call(name, described("gather"), std::vector<int64_t>{10 + rank});
    ranks[rank].flush();
  };
  for (const int rank : {0, 1}) call(rank, "a");
  ranks.settle();
  call(0, "a");  // cached, so the rank does not send its extras again
  for (const int rank : {0, 1}) call(rank, "b");
  ranks.settle();
  call(1, "a");
  ranks.settle();
  ranks.expect_same_course();
  EXPECT_EQ(ranks[1].log.back(), "run a=gather 0:10 1:11");
}

// A joined rank sends nothing but confirmations that entries may be evicted.
TEST(Negotiator, ARankThatHasJoinedLetsOthersForget) {
  NegotiatorOptions options;
  options.cache_capacity = 1;
  NegotiatorWorld ranks(Topology::one_host(3), 0, options);
  ranks[2].join();
  for (int call = 0; call < 1000; ++call) {
    for (int rank = 0; rank < 2; ++rank)
      ranks[rank].call("call " + std::to_string(call), described("sum"));
    ranks.settle();
  }
  for (int rank = 0; rank < 3; ++rank) EXPECT_LE(ranks[rank].negotiator().remembered(), 200u);
}

TEST(Negotiator, LettersThatMakeNoSenseAreErrors) {
  NegotiatorWorld ranks(Topology::one_host(2), 0);
  ReadyMessage message;
  message.ready = {{{99, {}, {}}, 1, {}, {}, {}}};
  EXPECT_TRUE(ranks[0].negotiator().receive(1, message.encode()));
  EXPECT_TRUE(ranks[0].negotiator().receive(7, ReadyMessage().encode()));
  EXPECT_TRUE(ranks[0].negotiator().receive(1, ConstBytes()));
  for (const int rank : {-1, 2}) {
    message.ready = {{{0, "a", described("sum")}, rank, {}, {}, {}}};
    EXPECT_TRUE(ranks[0].negotiator().receive(1, message.encode()));
    message.ready = {{{0, "a", described("sum")}, 1, {{rank, {}}}, {}, {}}};
    EXPECT_TRUE(ranks[0].negotiator().receive(1, message.encode()));
  }
  message.ready = {{{0, "a", described("sum", 1, -1)}, 1, {}, {}, {}}};
  EXPECT_TRUE(ranks[0].negotiator().receive(1, message.encode()));
  const ReadyCall good{{0, "a", described("sum")}, 1, {}, {}, {}};
  message.ready = {good, good};
  EXPECT_TRUE(ranks[0].negotiator().receive(1, message.encode()));
  DecisionMessage decision;
  decision.position = 2;
  EXPECT_TRUE(ranks[1].negotiator().receive(0, decision.encode(0)));
  EXPECT_TRUE(ranks[1].negotiator().receive(0, DecisionMessage().encode(1)));
  decision.position = 1;
  decision.batches = {{{{5, {}, {}}, false, {}}}};
  EXPECT_TRUE(ranks[1].negotiator().receive(0, decision.encode(0)));
}

}  // namespace
}  // namespace ringdist
