#include "negotiation/negotiation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>
#include <thread>

#include "negotiation/named_ranks.h"

namespace ringdist {
namespace {

uint64_t seeds() {
  const char* text = std::getenv("RINGDIST_TEST_SEEDS");
  return text != nullptr ? std::stoull(text) : 20;
}

TEST(Negotiation, RunsCallsThatEachRankMakesInAnotherOrder) {
  constexpr int kNames = 40;
  for (uint64_t seed = 1; seed <= seeds(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const int size = 1 + static_cast<int>(seed % 5);
    NegotiatorOptions options;
    options.fusion_bytes = static_cast<int64_t>(1) << (seed % 3 * 6);  // includes 1: no fusion
    options.cache_capacity = seed % 2 == 0 ? 1024 : 7;
    NamedRanks ranks(delayed(size, seed), options);
    ranks.run([&](int rank) {
      std::mt19937_64 random(seed * 100 + static_cast<uint64_t>(rank));
      std::vector<int> order(kNames);
      std::iota(order.begin(), order.end(), 0);
      std::vector<std::vector<float>> data(kNames);
      for (int round = 0; round < 3; ++round) {
        std::ranges::shuffle(order, random);
        std::vector<std::shared_ptr<Op>> ends(kNames);
        for (const int i : order) {
          data[i].assign(1 + i % 7, static_cast<float>(i + rank));
          ends[i] = ranks[rank].call(sum_of(name_of(i), data[i]), false).value();
        }
        for (int i = 0; i < kNames; ++i) {
          const Error error = ranks.wait(rank, name_of(i), *ends[i]);
          ASSERT_FALSE(error) << error.what();
          const auto sum = static_cast<float>(size * i + size * (size - 1) / 2);
          for (const float x : data[i]) ASSERT_EQ(x, sum) << name_of(i);
        }
      }
    });
  }
}

TEST(Negotiation, TakesCallsOfSeveralThreads) {
  constexpr int kThreads = 3, kNames = 30;
  NamedRanks ranks(delayed(4, 7));
  const auto calls = [&](int rank, int thread) {
    std::vector<int> order(kNames);
    std::iota(order.begin(), order.end(), thread * kNames);
    std::ranges::shuffle(order, std::mt19937_64(static_cast<uint64_t>(rank * 10 + thread)));
    std::map<int, std::vector<float>> data;
    std::map<int, std::shared_ptr<Op>> ends;
    for (const int i : order) {
      data[i].assign(3, static_cast<float>(i));
      ends[i] = ranks[rank].call(sum_of(name_of(i), data[i]), false).value();
    }
    for (const auto& [i, end] : ends) {
      const Error error = ranks.wait(rank, name_of(i), *end);
      EXPECT_FALSE(error) << error.what();
      EXPECT_EQ(data[i][2], static_cast<float>(4 * i));
    }
  };
  ranks.run([&](int rank) {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&, thread] { calls(rank, thread); });
    for (auto& thread : threads) thread.join();
  });
}

TEST(Negotiation, RunsWhatIsReadyTogetherAsOneOp) {
  constexpr int kNames = 50;
  NamedRanks ranks(delayed(2, 3));
  ranks.run([&](int rank) {
    std::vector<std::vector<float>> data(kNames, std::vector<float>(10, 1.0f));
    std::vector<std::shared_ptr<Op>> ends;
    for (int i = 0; i < kNames; ++i)
      ends.push_back(ranks[rank].call(sum_of(name_of(i), data[i]), false).value());
    for (int i = 0; i < kNames; ++i) ASSERT_FALSE(ranks.wait(rank, name_of(i), *ends[i]));
    EXPECT_LT(ranks[rank].group().sequence_number(), kNames / 2);
  });
}

TEST(Negotiation, NamesBothSidesOfADisagreementAndGoesOn) {
  NamedRanks ranks(delayed(3, 1));
  ranks.run([&](int rank) {
    std::vector<float> data(rank == 1 ? 4 : 3, 1.0f);
    const Error error = ranks.call(rank, sum_of("x", data));
    ASSERT_EQ(error.kind(), ErrorKind::kMismatch);
    for (const char* word : {"'x'", "[3]", "[4]", "rank 1"})
      EXPECT_NE(error.message().find(word), std::string::npos) << error.message();
    EXPECT_EQ(data[0], 1.0f);
    std::vector<float> next(5, 1.0f);
    EXPECT_FALSE(ranks.call(rank, sum_of("x", next)));
    EXPECT_EQ(next[4], 3.0f);
  });
}

TEST(Negotiation, KeepsANameUntilItIsReleased) {
  NamedRanks ranks(of_size(2));
  ranks.run([&](int rank) {
    std::vector<float> data(3, 1.0f), other(3, 1.0f);
    const auto end = ranks[rank].call(sum_of("x", data), true).value();
    const auto second = ranks[rank].call(sum_of("x", other), true);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().kind(), ErrorKind::kInvalidArgument);
    EXPECT_NE(second.error().message().find("name='x' is taken"), std::string::npos);
    EXPECT_TRUE(ranks[rank].wait(*end, std::nullopt));
    EXPECT_FALSE(ranks[rank].call(sum_of("x", other), true).ok()) << "it has not been released";
    ranks[rank].release("x", *end);
    EXPECT_FALSE(ranks.call(rank, sum_of("x", other)));
    EXPECT_EQ(other[0], 2.0f);
  });
}

TEST(Negotiation, FreesAReleasedNameWhenItsCallEnds) {
  NamedRanks ranks(of_size(2));
  ranks.run([&](int rank) {
    std::vector<float> data(3, 1.0f), other(3, 1.0f);
    if (rank == 1) {
      EXPECT_FALSE(ranks.call(1, sum_of("first", other)));
    }
    const auto end = ranks[rank].call(sum_of("x", data), true).value();
    ranks[rank].release("x", *end);
    if (rank == 0) {  // rank 1 has not called it
      EXPECT_FALSE(ranks[0].call(sum_of("x", other), true).ok());
      EXPECT_FALSE(ranks.call(0, sum_of("first", other)));
    }
    EXPECT_TRUE(ranks[rank].wait(*end, std::nullopt));
    other.assign(3, 1.0f);
    const auto second = ranks[rank].call(sum_of("x", other), true).value();
    ranks[rank].release("x", *end);
    EXPECT_FALSE(ranks[rank].call(sum_of("x", data), true).ok()) << "the first call freed it";
    EXPECT_TRUE(ranks[rank].wait(*second, std::nullopt));
    EXPECT_EQ(other[0], 2.0f);
  });
}

TEST(Negotiation, LetsGoWhatACallHoldsWithItsEnd) {
  NamedRanks ranks(of_size(2));
  ranks.run([&](int rank) {
    std::vector<float> data(3, 1.0f);
    const auto held = std::make_shared<int>();
    NamedCall call = sum_of("x", data);
    call.requests = [held, requests = call.requests](const ExtrasByRank& said) {
      auto out = requests(said);
      if (out.ok()) out.value()[0].keep_alive = held;
      return out;
    };
    EXPECT_FALSE(ranks.call(rank, std::move(call)));
    for (int i = 0; i < 2000 && held.use_count() > 1; ++i)
      std::this_thread::sleep_for(Milliseconds(5));  // another thread may release it
    EXPECT_EQ(held.use_count(), 1);
    ranks.close(rank);
  });
}

TEST(Negotiation, GivesEachWhatAllHaveSaidOfThemselves) {
  NamedRanks ranks(delayed(3, 5));
  ranks.run([&](int rank) {
    for (int round = 0; round < 3; ++round) {
      CallContent content;
      content.kind = Collective::kAllgather;
      content.tensors = {{DType::kInt32, {CallContent::kAny}}};
      std::vector<int32_t> rows(static_cast<size_t>(rank + (round > 1 ? 2 : 1)), rank);
      std::vector<int32_t> all;
      const auto request = [&](const ExtrasByRank& extras) {
        int64_t total = 0;
        OpRequest out;
        for (const auto& [from, values] : extras) {
          total += values[0];
          out.output_parts.push_back(values[0]);
        }
        all.resize(static_cast<size_t>(total));
        out.kind = Collective::kAllgather;
        out.dtype = DType::kInt32;
        out.reduce_op = ReduceOp::kNone;
        out.input = out.output = Buffer(sizeof(int32_t));
        out.input.append(rows.data(), static_cast<int64_t>(rows.size()));
        out.output.append(all.data(), total);
        out.count = static_cast<int64_t>(rows.size());
        return only(std::move(out));
      };
      const Error error =
          ranks.call(rank, {"rows", "allgather", content.describe(),
                            std::vector{static_cast<int64_t>(rows.size())}, request});
      ASSERT_FALSE(error) << error.what();
      std::vector<int32_t> expected;
      for (int from = 0; from < 3; ++from)
        expected.insert(expected.end(), static_cast<size_t>(from + (round > 1 ? 2 : 1)), from);
      EXPECT_EQ(all, expected);
    }
  });
}

TEST(Negotiation, GoesOnWithoutThoseThatHaveJoined) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    NamedRanks ranks(delayed(3, seed));
    ranks.run([&](int rank) {
      for (int phase = 0; phase < 2; ++phase) {
        for (int round = 0; round < 2 + rank; ++round) {
          const int there = round < 2 ? 3 : round < 3 ? 2 : 1;
          std::vector<float> sum(3, 2.0f), mean(3, 3.0f), least(3, 7.0f), product(3, 2.0f);
          ASSERT_FALSE(ranks.call(rank, sum_of("sum", sum)));
          ASSERT_FALSE(ranks.call(rank, sum_of("mean", mean, ReduceOp::kAvg)));
          ASSERT_FALSE(ranks.call(rank, sum_of("least", least, ReduceOp::kMin)));
          ASSERT_FALSE(ranks.call(rank, sum_of("product", product, ReduceOp::kProduct)));
          EXPECT_EQ(sum[0], static_cast<float>(2 * there));
          EXPECT_EQ(mean[0], static_cast<float>(there));
          EXPECT_EQ(least[0], 7.0f);
          EXPECT_EQ(product[0], static_cast<float>(1 << there));
        }
        EXPECT_EQ(ranks.join(rank), 2);
      }
    });
  }
}

TEST(Negotiation, FailsWhatNeedsOneThatHasJoined) {
  NamedRanks ranks(of_size(2));
  ranks.run([&](int rank) {
    if (rank == 1) {
      EXPECT_EQ(ranks.join(1), 0);
      return;
    }
    CallContent content;
    content.kind = Collective::kBroadcast;
    content.tensors = {{DType::kFloat32, {3}}};
    const Error error = ranks.call(0, {"b",
                                       "allgather",
                                       content.describe(),
                                       {},
                                       [](const ExtrasByRank&) -> Result<std::vector<OpRequest>> {
                                         return Error(ErrorKind::kProtocol, "it must not run");
                                       }});
    ASSERT_EQ(error.kind(), ErrorKind::kMismatch);
    EXPECT_NE(error.message().find("rank 1 has joined"), std::string::npos) << error.message();
    EXPECT_EQ(ranks.join(0), 0);
  });
}

TEST(Negotiation, RefusesCallsOfARankThatHasJoined) {
  NamedRanks ranks(of_size(2));
  ranks.run([&](int rank) {
    std::vector<float> data(3, 1.0f);
    if (rank == 0) {
      const auto join = ranks[0].join().value();
      const auto call = ranks[0].call(sum_of("x", data), false);
      ASSERT_FALSE(call.ok());
      EXPECT_NE(call.error().message().find("has joined"), std::string::npos);
      EXPECT_FALSE(ranks[0].join().ok());
      EXPECT_TRUE(ranks[0].wait(*join.end, std::nullopt));
    } else {
      std::this_thread::sleep_for(Milliseconds(50));
      EXPECT_EQ(ranks.join(1), 1);
    }
    EXPECT_FALSE(ranks.call(rank, sum_of("x", data)));
  });
}

TEST(Negotiation, OfOneRankRunsAtOnce) {
  NamedRanks ranks(of_size(1));
  std::vector<float> data(3, 2.0f);
  EXPECT_FALSE(ranks.call(0, sum_of("x", data, ReduceOp::kAvg)));
  EXPECT_EQ(data[0], 2.0f);
  EXPECT_EQ(ranks.join(0), 0);
}

}  // namespace
}  // namespace ringdist
