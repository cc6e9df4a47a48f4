// Groups that lose members and continue. The ranks are threads with one Context each. A Context
// that is shut down is gone for good, like its process.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <filesystem>
#include <future>
#include <random>
#include <thread>

#include "support/group_sum.h"
#include "support/ranks.h"

namespace ringdist {
namespace {

ShrinkResult must_shrink(Communicator& group) {
  auto out = group.shrink(Milliseconds(20000));
  EXPECT_TRUE(out.ok()) << out.error().what();
  return out.ok() ? out.value() : ShrinkResult{};
}

TEST(Shrink, OneOfFourIsLostAndTheOthersGoOn) {
  Ranks ranks(of_size(4));
  ranks.run([&](int rank) { EXPECT_EQ(sum_of_ones(ranks[rank]).value(), 4.0f); });
  ranks.context(2).shutdown();
  std::vector<ShrinkResult> outcomes(4);
  ranks.run([&](int rank) {
    if (rank == 2) return;
    outcomes[rank] = must_shrink(ranks[rank]);
    ASSERT_NE(outcomes[rank].group, nullptr);
    const auto result = sum_of_ones(*outcomes[rank].group);
    ASSERT_TRUE(result.ok()) << result.error().what();
    EXPECT_EQ(result.value(), 3.0f);
  });
  for (const int rank : {0, 1, 3}) {
    const ShrinkResult& one = outcomes[rank];
    EXPECT_EQ(one.generation, 1u);
    EXPECT_EQ(one.survivors, (std::vector<int>{0, 1, 3}));
    ASSERT_EQ(one.lost.size(), 1u);
    EXPECT_EQ(one.lost[0].rank, 2);
    EXPECT_EQ(one.first_unfinished, 2u);
    EXPECT_EQ(one.group->members(), (std::vector<int>{0, 1, 3}));
  }
}

// A refused request leaves the group unchanged.
TEST(Shrink, WhatCannotBeIsRefused) {
  Ranks one(of_size(1));
  const auto alone = one[0].shrink(Milliseconds(1000));
  ASSERT_FALSE(alone.ok());
  EXPECT_EQ(alone.error().kind(), ErrorKind::kNotSupported);

  RanksOptions options = of_size(2);
  options.one_context = true;
  Ranks together(options);
  together.run([&](int rank) { EXPECT_EQ(sum_of_ones(together[rank]).value(), 2.0f); });
  const auto shared = together[0].shrink(Milliseconds(1000));
  ASSERT_FALSE(shared.ok());
  EXPECT_EQ(shared.error().kind(), ErrorKind::kNotSupported);
  together.run([&](int rank) { EXPECT_EQ(sum_of_ones(together[rank]).value(), 2.0f); });

  Ranks two(of_size(2));
  two.run([&](int rank) { EXPECT_EQ(sum_of_ones(two[rank]).value(), 2.0f); });
  two.run([&](int rank) {
    EXPECT_NE(must_shrink(two[rank]).group, nullptr);
    const auto again = two[rank].shrink(Milliseconds(1000));
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.error().kind(), ErrorKind::kInvalidArgument);
  });
}

TEST(Shrink, NobodyNeedBeLost) {
  Ranks ranks(of_size(3));
  std::barrier all_have_it(3);  // shrinking ends ops that others have in flight
  ranks.run([&](int rank) {
    EXPECT_EQ(sum_of_ones(ranks[rank]).value(), 3.0f);
    all_have_it.arrive_and_wait();
    ShrinkResult out = must_shrink(ranks[rank]);
    for (uint32_t generation = 1; generation <= 5; ++generation) {
      ASSERT_NE(out.group, nullptr);
      EXPECT_EQ(out.generation, generation);
      EXPECT_TRUE(out.lost.empty());
      EXPECT_EQ(out.first_unfinished, 2u);
      EXPECT_EQ(sum_of_ones(*out.group).value(), 3.0f);
      all_have_it.arrive_and_wait();
      out = must_shrink(*out.group);
    }
  });
}

size_t entries_of(const char* folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST(Shrink, AHundredGenerationsLeaveNothingBehind) {
  Ranks ranks(of_size(3));
  std::barrier all_have_it(3);
  std::vector<std::shared_ptr<Communicator>> groups(3);
  const auto shrink_all = [&](int times) {
    ranks.run([&](int rank) {
      for (int i = 0; i < times; ++i) {
        Communicator& group = groups[rank] ? *groups[rank] : ranks[rank];
        EXPECT_TRUE(sum_of_ones(group).ok());
        all_have_it.arrive_and_wait();
        auto next = must_shrink(group).group;
        if (groups[rank]) groups[rank]->close();
        groups[rank] = std::move(next);
        ASSERT_NE(groups[rank], nullptr);
      }
    });
  };
  shrink_all(3);
  const size_t descriptors = entries_of("/proc/self/fd");
  const size_t threads = entries_of("/proc/self/task");
  shrink_all(100);
  // Idle threads and connections end after a while.
  const auto is_as_before = [&] {
    return entries_of("/proc/self/fd") <= descriptors && entries_of("/proc/self/task") <= threads;
  };
  for (const TimePoint end = Clock::now() + std::chrono::seconds(10);
       !is_as_before() && Clock::now() < end;)
    std::this_thread::sleep_for(Milliseconds(20));
  EXPECT_LE(entries_of("/proc/self/fd"), descriptors);
  EXPECT_LE(entries_of("/proc/self/task"), threads);
}

// A member that does not call shrink() is queried and gets the decision.
TEST(Shrink, ARankThatComesLateFindsWhatWasDecided) {
  Ranks ranks(of_size(3));
  ranks.run([&](int rank) { EXPECT_EQ(sum_of_ones(ranks[rank]).value(), 3.0f); });
  std::promise<void> shrunk;
  ranks.run([&](int rank) {
    if (rank == 2) {
      shrunk.get_future().wait();
      const auto error = sum_of_ones(ranks[rank]);
      ASSERT_FALSE(error.ok());
      EXPECT_NE(error.error().message().find("torch_ringdist.shrink()"), std::string::npos)
          << error.error().what();
    }
    const ShrinkResult out = must_shrink(ranks[rank]);
    if (rank == 0) shrunk.set_value();
    ASSERT_NE(out.group, nullptr);
    EXPECT_EQ(sum_of_ones(*out.group).value(), 3.0f);
  });
}

// The process lives and reports that it has left the group, so no member waits for it.
TEST(Shrink, WhoDestroyedTheGroupIsNotWaitedFor) {
  RanksOptions options = of_size(3);
  options.config["peer_timeout"] = "100";
  Ranks ranks(options);
  ranks.run([&](int rank) { EXPECT_EQ(sum_of_ones(ranks[rank]).value(), 3.0f); });
  ranks[2].close();
  ranks.run([&](int rank) {
    if (rank == 2) return;
    const ShrinkResult out = must_shrink(ranks[rank]);
    ASSERT_NE(out.group, nullptr);
    ASSERT_EQ(out.lost.size(), 1u);
    EXPECT_EQ(out.lost[0].rank, 2);
    EXPECT_FALSE(out.lost[0].died);
    EXPECT_EQ(sum_of_ones(*out.group).value(), 2.0f);
  });
}

// A member votes and then destroys the group. The others must detect this at once.
TEST(Shrink, WhoStaysAndDoesNotComeIsLostInTheNextGeneration) {
  RanksOptions options = of_size(3);
  options.config["peer_timeout"] = "100";
  Ranks ranks(options);
  ranks.run([&](int rank) { EXPECT_EQ(sum_of_ones(ranks[rank]).value(), 3.0f); });
  std::promise<void> decided;
  ranks.run([&](int rank) {
    if (rank == 2) {
      decided.get_future().wait();
      return ranks[2].close();
    }
    std::vector<ShrinkResult> found{must_shrink(ranks[rank])};
    if (rank == 0) decided.set_value();
    // A late caller gets the second decision at once.
    while (found.back().group != nullptr && !sum_of_ones(*found.back().group).ok())
      found.push_back(must_shrink(*found.back().group));
    ASSERT_NE(found.back().group, nullptr);
    EXPECT_EQ(found.back().group->members(), (std::vector<int>{0, 1}));
    EXPECT_EQ(sum_of_ones(*found.back().group).value(), 2.0f);
  });
}

TEST(Shrink, WithoutSomeNobodyIsAsked) {
  Ranks ranks(of_size(4));
  std::vector<std::shared_ptr<Communicator>> groups(4);
  ranks.run([&](int rank) {
    EXPECT_EQ(sum_of_ones(ranks[rank]).value(), 4.0f);
    if (rank == 1) return;
    const auto without = ranks[rank].without({1});
    ASSERT_TRUE(without.ok()) << without.error().what();
    groups[rank] = without.value();
    EXPECT_EQ(groups[rank]->size(), 3);
    EXPECT_EQ(groups[rank]->members(), (std::vector<int>{0, 2, 3}));
    EXPECT_EQ(sum_of_ones(*groups[rank]).value(), 3.0f);
  });
  ranks.run([&](int rank) {  // the original group still works
    EXPECT_EQ(sum_of_ones(ranks[rank]).value(), 4.0f);
  });
  ranks.context(3).shutdown();
  for (const int rank : {0, 2}) groups[rank]->stop_and_report({ErrorKind::kAborted, "a test"});
  ranks.run([&](int rank) {
    if (rank % 2 == 1) return;
    const ShrinkResult out = must_shrink(*groups[rank]);
    ASSERT_NE(out.group, nullptr);
    EXPECT_EQ(out.group->members(), (std::vector<int>{0, 2}));
    EXPECT_EQ(sum_of_ones(*out.group).value(), 2.0f);
  });
}

// One member ends while messages of a sum are in flight. The others continue, and the sums that
// they repeat are right.
void lose_one(uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto up_to = [&](uint64_t most) {
    return std::uniform_int_distribution(0ul, most)(random);
  };
  RanksOptions options = of_size(2 + static_cast<int>(up_to(3)));
  const int size = options.size;
  const int victim = static_cast<int>(up_to(size - 1));
  const uint64_t last = 1 + up_to(60);
  const auto count = static_cast<size_t>(1 + up_to(30000));
  std::atomic<uint64_t> messages{0};
  std::promise<void> due;
  options.network.seed = seed;
  options.network.max_delay = std::chrono::microseconds(up_to(100));
  options.network.tap = [&](ConstBytes, ConstBytes) {
    if (++messages == last) due.set_value();
  };
  Ranks ranks(options);
  std::thread killer([&] {
    due.get_future().wait();
    ranks.context(victim).shutdown();
  });
  const auto value_of = [](int rank, size_t i) { return static_cast<int32_t>(rank + i % 1000); };
  std::vector<ShrinkResult> outcomes(size);
  ranks.run([&](int rank) {
    Communicator* group = &ranks[rank];
    uint64_t done = 0;
    for (bool lost = false;;) {
      std::vector<int32_t> data(count);
      for (size_t i = 0; i < count; ++i) data[i] = value_of(rank, i);
      const Error error = run_op(*group, allreduce_request(data, DType::kInt32, ReduceOp::kSum));
      if (error && rank == victim) return;
      ASSERT_FALSE(error && lost) << error.what();
      if (!error) {
        ++done;
        for (size_t i = 0; i < count; ++i) {
          int32_t sum = 0;
          for (int one = 0; one < size; ++one)
            if (!lost || one != victim) sum += value_of(one, i);
          ASSERT_EQ(data[i], sum) << "at " << i << ", rank " << rank;
        }
        if (lost) return;
        continue;
      }
      outcomes[rank] = must_shrink(*group);
      group = outcomes[rank].group.get();
      ASSERT_NE(group, nullptr);
      EXPECT_LE(outcomes[rank].first_unfinished, done + 1);
      lost = true;
    }
  });
  killer.join();
  const ShrinkResult& first = outcomes[victim == 0 ? 1 : 0];
  for (int rank = 0; rank < size; ++rank) {
    if (rank == victim) continue;
    EXPECT_EQ(outcomes[rank].generation, 1u);
    EXPECT_EQ(outcomes[rank].survivors, first.survivors);
    EXPECT_EQ(outcomes[rank].first_unfinished, first.first_unfinished);
    ASSERT_EQ(outcomes[rank].lost.size(), 1u);
    EXPECT_EQ(outcomes[rank].lost[0].rank, victim);
    EXPECT_TRUE(outcomes[rank].lost[0].died);
  }
}

TEST(Shrink, WhoeverEndsAtWhateverMessage) {
  const uint64_t seeds = wanted_seeds(50);
  for (uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) lose_one(seed);
}

}  // namespace
}  // namespace ringdist
