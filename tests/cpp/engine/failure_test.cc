// Groups that fail: every rank gets an error that names the rank and the cause, no rank hangs, and
// a new group of the same Contexts works.
#include <gtest/gtest.h>

#include <thread>

#include "support/group_sum.h"
#include "support/hooked_store.h"
#include "support/ranks.h"

namespace ringdist {
namespace {

bool contains(const Error& error, const std::string& text) {
  return error && error.message().find(text) != std::string::npos;
}

RanksOptions three(Milliseconds timeout) {
  RanksOptions out;
  out.size = 3;
  out.timeout = timeout;
  return out;
}

// Returns options where messages are late and in any order across senders. Notices are not
// delayed.
RanksOptions three_over_slow_links(uint64_t seed) {
  RanksOptions out = three(Milliseconds(20000));
  out.network = {seed, Milliseconds(50)};
  return out;
}

// Calls an op on all ranks and returns the errors: of this op, or of the next one if a rank had
// completed its part.
std::vector<Error> errors_of(Ranks& ranks,
                             const std::function<OpRequest(int, std::vector<float>&)>& make) {
  std::vector<Error> out(ranks.size());
  ranks.run([&](int rank) {
    std::vector<float> data(64, 1.0f);
    out[rank] = run_op(ranks[rank], make(rank, data));
    for (int i = 0; i < 100 && !out[rank]; ++i) {
      std::this_thread::sleep_for(Milliseconds(20));
      out[rank] = ranks[rank].failure();
    }
  });
  return out;
}

void expect_new_group_works(Ranks& ranks) {
  auto again = ranks.another("again");
  ranks.run([&](int rank) {
    std::vector<float> data(1000, 1.0f);
    const Error error =
        run_op(*again[rank], allreduce_request(data, DType::kFloat32, ReduceOp::kSum));
    ASSERT_FALSE(error) << error.what();
    ASSERT_EQ(data[999], 3.0f);
  });
}

// Rank 0 has found all members and no longer reads the store. Rank 1 still reads it when it
// aborts.
TEST(Abort, IsHeardThoughItsRankKnowsNobodyYet) {
  Ranks ranks({});
  const auto slow = std::make_shared<HookedStore>(ranks.store(), [](std::string_view what) {
    if (what == "check") std::this_thread::sleep_for(Milliseconds(200));
  });
  const auto group = ranks.another("late", {{1, slow}});
  const TimePoint before = Clock::now();
  ranks.run([&](int rank) {
    if (rank == 1) {
      std::this_thread::sleep_for(Milliseconds(100));
      group[1]->abort("for a test");
      return group[1]->close();
    }
    std::vector<float> data(64, 1.0f);
    const Error error = run_op(*group[0], allreduce_request(data, DType::kFloat32, ReduceOp::kSum));
    EXPECT_TRUE(contains(error, "for a test")) << (error ? error.what() : "no error");
    EXPECT_LT(seconds(Clock::now() - before), 10.0);
  });
}

TEST(Mismatch, OtherCount) {
  Ranks ranks(three(Milliseconds(10000)));
  const auto errors = errors_of(ranks, [](int rank, std::vector<float>& data) {
    if (rank == 1) data.resize(32);
    return allreduce_request(data, DType::kFloat32, ReduceOp::kSum);
  });
  for (const Error& error : errors) {
    EXPECT_TRUE(contains(error, "64 elements") && contains(error, "32 elements"))
        << (error ? error.what() : "no error");
    EXPECT_EQ(error ? error.kind() : ErrorKind::kAborted, ErrorKind::kMismatch);
  }
  expect_new_group_works(ranks);
}

TEST(Mismatch, OtherCollectiveWithoutACommonEdge) {
  Ranks ranks(three(Milliseconds(10000)));
  const auto errors = errors_of(ranks, [](int rank, std::vector<float>& data) {
    OpRequest request = allreduce_request(data, DType::kFloat32, ReduceOp::kSum);
    if (rank == 0) {  // the root sends and is done
      request.kind = Collective::kBroadcast;
      request.reduce_op = ReduceOp::kNone;
    }
    return request;
  });
  for (const Error& error : errors)
    EXPECT_TRUE(contains(error, "all_reduce(") && contains(error, "broadcast("))
        << (error ? error.what() : "no error");
  expect_new_group_works(ranks);
}

TEST(Timeout, NamesTheRankThatDidNotCome) {
  Ranks ranks(three(Milliseconds(20000)));
  ranks.run([&](int rank) {
    std::vector<float> data(64, 1.0f);
    const Error error =
        run_op(ranks[rank], allreduce_request(data, DType::kFloat32, ReduceOp::kSum));
    ASSERT_FALSE(error) << error.what();
  });
  ranks.run([&](int rank) {
    if (rank == 2) return;
    std::vector<float> data(64, 1.0f);
    ranks[rank].set_timeout(Milliseconds(1500));
    const Error error =
        run_op(ranks[rank], allreduce_request(data, DType::kFloat32, ReduceOp::kSum));
    EXPECT_TRUE(contains(error, "Timed out") && contains(error, "rank 2"))
        << (error ? error.what() : "no error");
    EXPECT_FALSE(contains(error, "by rank 0") || contains(error, "by rank 1")) << error.what();
    EXPECT_EQ(error.ranks(), std::vector<int>{2});  // independent of the rank that noticed first
  });
  expect_new_group_works(ranks);
}

TEST(Abort, ReachesEveryRank) {
  Ranks ranks(three(Milliseconds(20000)));
  ranks.run([&](int rank) {
    std::vector<float> data(64, 1.0f);
    if (rank == 0) {
      std::this_thread::sleep_for(Milliseconds(200));
      ranks[0].abort("rank 0 was told to");
      return;
    }
    const Error error =
        run_op(ranks[rank], allreduce_request(data, DType::kFloat32, ReduceOp::kSum));
    EXPECT_TRUE(contains(error, "Connection closed by peer: rank 0 was told to"))
        << (error ? error.what() : "no error");
  });
  expect_new_group_works(ranks);
}

TEST(Abort, NothingIsTakenAfterIt) {
  Ranks ranks(three(Milliseconds(20000)));
  ranks.run([&](int rank) { EXPECT_EQ(sum_of_ones(ranks[rank]).value(), 3.0f); });
  ranks.context(2).progress().post([] { std::this_thread::sleep_for(Milliseconds(100)); });
  ranks[2].abort("for a test");
  EXPECT_TRUE(contains(ranks[2].failure(), "for a test"));
}

TEST(Leave, IsNotADeath) {
  Ranks ranks(three(Milliseconds(20000)));
  ranks.run([&](int rank) {
    std::vector<float> data(64, 1.0f);
    const Error first =
        run_op(ranks[rank], allreduce_request(data, DType::kFloat32, ReduceOp::kSum));
    ASSERT_FALSE(first) << first.what();
    if (rank == 2) return ranks[2].close();
    const Error error =
        run_op(ranks[rank], allreduce_request(data, DType::kFloat32, ReduceOp::kSum));
    EXPECT_TRUE(contains(error, "rank 2") && contains(error, "left the group after op #1") &&
                contains(error, "Connection closed by peer: it destroyed the group"))
        << (error ? error.what() : "no error");
  });
}

// The process lives on here, so it counts as ended only after the peer timeout.
TEST(Leave, AnExitCountsWhenItIsOver) {
  RanksOptions options = three(Milliseconds(20000));
  options.config["peer_timeout"] = "1";
  Ranks ranks(options);
  TimePoint exited;
  ranks.run([&](int rank) {
    std::vector<float> data(64, 1.0f);
    const Error first =
        run_op(ranks[rank], allreduce_request(data, DType::kFloat32, ReduceOp::kSum));
    ASSERT_FALSE(first) << first.what();
    if (rank == 2) {
      exited = Clock::now();
      return ranks.context(2).shutdown(/*process_ends=*/true);
    }
    const Error error =
        run_op(ranks[rank], allreduce_request(data, DType::kFloat32, ReduceOp::kSum));
    EXPECT_TRUE(contains(error, "rank 2") && contains(error, "left the group after op #1") &&
                contains(error, "Connection closed by peer: its process exited"))
        << (error ? error.what() : "no error");
    EXPECT_GT(Clock::now() - exited, Milliseconds(900));
  });
}

// Rank 1 has read the store for the last time, but has not connected to rank 2 yet.
TEST(Leave, AnExitWaitsForWhoCountsOnIt) {
  RanksOptions options = three(Milliseconds(20000));
  options.config["peer_timeout"] = "1";
  options.store = [](int rank, std::shared_ptr<Store> store) {
    return std::make_shared<HookedStore>(std::move(store),
                                         [rank, gets = 0](std::string_view what) mutable {
                                           if (rank == 1 && what == "multi_get" && ++gets == 2)
                                             std::this_thread::sleep_for(Milliseconds(500));
                                         });
  };
  Ranks ranks(options);
  ranks.run([&](int rank) {
    if (rank == 2) {
      std::this_thread::sleep_for(Milliseconds(200));
      return ranks.context(2).shutdown(/*process_ends=*/true);
    }
    std::vector<float> data(64, 1.0f);
    const Error error =
        run_op(ranks[rank], allreduce_request(data, DType::kFloat32, ReduceOp::kSum));
    EXPECT_TRUE(contains(error, "rank 2") &&
                contains(error, "Connection closed by peer: its process exited"))
        << (error ? error.what() : "no error");
  });
}

// The messages of the rank are late, and the notice of its end arrives at once.
TEST(Leave, WhatTheLeaverCalledIsComparedFirst) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Ranks ranks(three_over_slow_links(seed));
    ranks.run([&](int rank) {
      std::vector<float> data(64, 1.0f);
      if (rank == 0) {  // the root sends and is done
        OpRequest request = allreduce_request(data, DType::kFloat32, ReduceOp::kSum);
        request.kind = Collective::kBroadcast;
        request.reduce_op = ReduceOp::kNone;
        const Error error = run_op(ranks[0], std::move(request));
        EXPECT_TRUE(!error || contains(error, "all_reduce(")) << error.what();  // if it was slow
        return ranks[0].close();
      }
      const Error error =
          run_op(ranks[rank], allreduce_request(data, DType::kFloat32, ReduceOp::kSum));
      EXPECT_TRUE(contains(error, "all_reduce(") && contains(error, "broadcast("))
          << (error ? error.what() : "no error") << ", seed " << seed;
    });
  }
}

// Data of an op that the leaving rank has finished is still on its way to the others.
TEST(Leave, EndsNoOpThatTheLeaverFinished) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Ranks ranks(three_over_slow_links(seed));
    ranks.run([&](int rank) {
      std::vector<float> data(64, 1.0f);
      std::vector<float> more(64, 1.0f);
      auto op = ranks[rank].submit(allreduce_request(data, DType::kFloat32, ReduceOp::kSum), false);
      ASSERT_TRUE(op.ok());
      if (rank == 2) {
        EXPECT_FALSE(wait_op(ranks[2], *op.value()));
        return ranks[2].close();
      }
      // When the notice arrives, rank 0 has both ops in flight, and rank 1 the first or none.
      if (rank == 1) {
        EXPECT_FALSE(wait_op(ranks[1], *op.value())) << "seed " << seed;
      }
      const Error error =
          run_op(ranks[rank], allreduce_request(more, DType::kFloat32, ReduceOp::kSum));
      EXPECT_TRUE(contains(error, "left the group")) << (error ? error.what() : "no error");
      EXPECT_FALSE(wait_op(ranks[rank], *op.value())) << "seed " << seed;
      EXPECT_EQ(data[63], 3.0f);
    });
  }
}

// The same holds for an abort. The exit of the aborting rank must not replace the error of its
// abort.
TEST(Abort, EndsNoOpThatTheAborterFinished) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Ranks ranks(three_over_slow_links(seed));
    ranks.run([&](int rank) {
      std::vector<float> data(64, 1.0f);
      std::vector<float> more(64, 1.0f);
      const Error first =
          run_op(ranks[rank], allreduce_request(data, DType::kFloat32, ReduceOp::kSum));
      EXPECT_FALSE(first) << first.what() << ", seed " << seed;
      if (rank == 2) {
        ranks[2].abort("rank 2 was told to");
        return ranks[2].close();
      }
      const Error error =
          run_op(ranks[rank], allreduce_request(more, DType::kFloat32, ReduceOp::kSum));
      EXPECT_TRUE(contains(error, "rank 2 was told to"))
          << (error ? error.what() : "no error") << ", seed " << seed;
    });
  }
}

TEST(Wait, ExpiredEndsOnlyTheWait) {
  Ranks ranks(three(Milliseconds(20000)));
  ranks.run([&](int rank) {
    std::vector<float> data(64, 1.0f);
    if (rank == 1) std::this_thread::sleep_for(Milliseconds(400));
    auto op = ranks[rank].submit(allreduce_request(data, DType::kFloat32, ReduceOp::kSum), false);
    ASSERT_TRUE(op.ok());
    const bool early = ranks[rank].wait(*op.value(), Milliseconds(50));
    EXPECT_TRUE(rank == 1 || !early);
    EXPECT_TRUE(ranks[rank].wait(*op.value(), Milliseconds(10000)));
    EXPECT_FALSE(op.value()->error());
    EXPECT_EQ(data[0], 3.0f);
  });
}

TEST(Async, FinishesThoughNobodyWaits) {
  Ranks ranks(three(Milliseconds(20000)));
  ranks.run([&](int rank) {
    std::vector<float> data(100000, 1.0f);
    auto op = ranks[rank].submit(allreduce_request(data, DType::kFloat32, ReduceOp::kSum), false);
    ASSERT_TRUE(op.ok());
    const TimePoint deadline = Clock::now() + std::chrono::seconds(10);
    while (!op.value()->finished() && Clock::now() < deadline)
      std::this_thread::sleep_for(Milliseconds(1));
    ASSERT_TRUE(op.value()->finished());
    ASSERT_EQ(data[99999], 3.0f);
  });
}

TEST(Groups, OppositeOrderOnDifferentRanks) {
  Ranks ranks(three(Milliseconds(20000)));
  auto other = ranks.another("other");
  ranks.run([&](int rank) {
    std::vector<float> one(2000000, 1.0f);
    std::vector<float> two(2000000, 2.0f);
    const auto call = [&](Communicator& group, std::vector<float>& data) {
      return group.submit(allreduce_request(data, DType::kFloat32, ReduceOp::kSum), false).value();
    };
    std::shared_ptr<Op> first;
    std::shared_ptr<Op> second;
    if (rank == 1) {
      second = call(*other[rank], two);
      first = call(ranks[rank], one);
    } else {
      first = call(ranks[rank], one);
      second = call(*other[rank], two);
    }
    ASSERT_FALSE(wait_op(ranks[rank], *first));
    ASSERT_FALSE(wait_op(*other[rank], *second));
    ASSERT_EQ(one[1999999], 3.0f);
    ASSERT_EQ(two[1999999], 6.0f);
  });
}

}  // namespace
}  // namespace ringdist
