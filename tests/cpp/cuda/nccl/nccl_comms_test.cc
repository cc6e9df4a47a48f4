// Communicators of several ranks in threads. The ranks exchange data through a table.
#include "cuda/nccl/nccl_comms.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "support/fake_nccl.h"
#include "support/fake_streams.h"

namespace ringdist::gpu {
namespace {

constexpr auto kLong = std::chrono::seconds(20);

// Holds the contributions of ranks to an exchange.
class Table {
 public:
  using All = std::vector<std::vector<std::byte>>;

  Result<All> exchange(int rank, const std::vector<int>& ranks, ConstBytes mine,
                       TimePoint deadline) {
    std::unique_lock lock(mutex_);
    const int round = rounds_[{rank, ranks}]++;
    auto& given = given_[{round, ranks}];
    given[rank] = {mine.begin(), mine.end()};
    changed_.notify_all();
    if (!changed_.wait_until(lock, deadline, [&] { return given.size() == ranks.size(); }))
      return Error(ErrorKind::kTimeout, "a rank did not come");
    All out;
    for (const int one : ranks) out.push_back(given.at(one));
    return out;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, std::vector<int>>, int> rounds_;
  std::map<std::pair<int, std::vector<int>>, std::map<int, std::vector<std::byte>>> given_;
};

class TableGroup final : public RunnerDelegate {
 public:
  TableGroup(Table& table, int rank, int size) : table_(table), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Result<Table::All> exchange(const std::vector<int>& ranks, ConstBytes mine,
                              TimePoint deadline) override {
    return table_.exchange(rank_, ranks, mine, deadline);
  }
  Result<std::shared_ptr<GroupSharedMemory>> share(size_t, TimePoint) override {
    return std::shared_ptr<GroupSharedMemory>();
  }
  void set_affinity_near(const std::string&) override {}
  Error run_on_host(HostOp, std::function<void(Error)>) override {
    return Error(ErrorKind::kNotSupported, "not of this test");
  }

 private:
  Table& table_;
  const int rank_;
  const int size_;
};

using Use = NcclComms::Use;

class NcclCommsTest : public testing::Test {
 protected:
  static constexpr int kSize = 3;

  NcclCommsTest() {
    for (int rank = 0; rank < kSize; ++rank) {
      groups_.push_back(std::make_unique<TableGroup>(table_, rank, kSize));
      comms_.push_back(std::make_unique<NcclComms>(nccl_, *groups_.back()));
    }
  }
  NcclComms& of(int rank) { return *comms_[static_cast<size_t>(rank)]; }
  void each(const std::vector<int>& ranks, const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (const int rank : ranks) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
  }
  static TimePoint soon() { return Clock::now() + kLong; }

  FakeStreams streams_;
  FakeNccl nccl_{streams_};
  Table table_;
  std::vector<std::unique_ptr<TableGroup>> groups_;
  std::vector<std::unique_ptr<NcclComms>> comms_;
};

TEST_F(NcclCommsTest, AreMadeOnceForAllAndForEachTwo) {
  each({0, 1, 2}, [&](int rank) {
    for (int again = 0; again < 2; ++again) EXPECT_FALSE(of(rank).make(0, kNoPeer, soon()));
  });
  each({0, 2}, [&](int rank) { EXPECT_FALSE(of(rank).make(0, 2 - rank, soon())); });
  EXPECT_EQ(nccl_.alive(), 3u + 4u);
  EXPECT_NE(of(0).find(0, kNoPeer, Use::kCollectives), nullptr);
  EXPECT_NE(of(2).find(0, 0, Use::kReceives), nullptr);
  EXPECT_EQ(of(1).find(0, 0, Use::kSends), nullptr);
  comms_.clear();
  EXPECT_EQ(nccl_.alive(), 0u);
}

TEST_F(NcclCommsTest, NameTheRankThatHasNoId) {
  nccl_.fail_next("unique_id", NcclResult::kSystemError);
  each({0, 1, 2}, [&](int rank) {
    const Error error = of(rank).make(0, kNoPeer, soon());
    ASSERT_TRUE(error);
    EXPECT_NE(error.message().find("rank 0 has no id"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("NCCL's error 2"), std::string::npos) << error.message();
  });
  each({0, 1, 2}, [&](int rank) { EXPECT_FALSE(of(rank).make(0, kNoPeer, soon())) << "again"; });
}

TEST_F(NcclCommsTest, EndAtTheDeadlineWhereARankFails) {
  nccl_.fail_next("init_rank", NcclResult::kUnhandledCudaError);
  std::atomic<int> timeouts{0}, failures{0};
  each({0, 1, 2}, [&](int rank) {
    const Error error = of(rank).make(0, kNoPeer, Clock::now() + std::chrono::milliseconds(300));
    ASSERT_TRUE(error);
    ++(error.kind() == ErrorKind::kTimeout ? timeouts : failures);
  });
  EXPECT_EQ(failures, 1);
  EXPECT_EQ(timeouts, 2);
  EXPECT_EQ(nccl_.alive(), 0u) << "what was half made";
}

TEST_F(NcclCommsTest, EndWhereTheGroupDoesWhileTheyAreMade) {
  std::thread aborts([&] {
    while (nccl_.calls("init_rank") == 0) std::this_thread::yield();
    of(0).abort();
  });
  // Rank 1 contributes to the exchange and then stops.
  each({0, 1}, [&](int rank) {
    if (rank == 1) {
      std::vector<std::byte> nothing(1024);
      (void)table_.exchange(1, {0, 1}, nothing, soon());
      return;
    }
    const Error error = of(0).make(0, 1, soon());
    EXPECT_EQ(error.kind(), ErrorKind::kAborted);
  });
  aborts.join();
  EXPECT_EQ(nccl_.alive(), 0u);
  EXPECT_EQ(of(0).make(0, 1, soon()).kind(), ErrorKind::kAborted);
}

TEST_F(NcclCommsTest, TellWhatNcclSaysOfThemLater) {
  each({1, 2}, [&](int rank) { EXPECT_FALSE(of(rank).make(0, 3 - rank, soon())); });
  EXPECT_FALSE(of(1).check());
  nccl_.break_comm(of(1).find(0, 2, Use::kSends), NcclResult::kRemoteError);
  const Error error = of(1).check();
  EXPECT_EQ(error.kind(), ErrorKind::kPeerLost);
  EXPECT_EQ(error.ranks(), std::vector<int>{2});
  EXPECT_NE(error.message().find("with rank 2"), std::string::npos) << error.message();
}

TEST_F(NcclCommsTest, AreGoneOnceAborted) {
  each({0, 1}, [&](int rank) { EXPECT_FALSE(of(rank).make(0, 1 - rank, soon())); });
  of(0).abort();
  of(0).abort();
  EXPECT_EQ(of(0).find(0, 1, Use::kSends), nullptr);
  EXPECT_FALSE(of(0).check());
  EXPECT_EQ(nccl_.alive(), 2u);
}

// ---- splits

// By rank: the ranks that it names as its part.
using Named = std::vector<std::vector<int>>;

class NcclSplitTest : public NcclCommsTest {
 protected:
  using Split = Result<std::shared_ptr<SplitComm>>;

  void make_all() {
    each({0, 1, 2}, [&](int rank) { EXPECT_FALSE(of(rank).make(0, kNoPeer, soon())); });
  }
  std::vector<Split> split(const Named& named) {
    std::vector<Split> out(kSize, Split(std::shared_ptr<SplitComm>()));
    each({0, 1, 2}, [&](int rank) {
      const auto i = static_cast<size_t>(rank);
      out[i] = of(rank).split(named[i], soon());
    });
    return out;
  }
  // Creates the groups of a part with the communicators that were split off. Rank 0 of the part is
  // ranks[0].
  void begin(const std::vector<int>& ranks, const std::vector<Split>& split,
             const std::vector<int>& devices) {
    const int size = static_cast<int>(ranks.size());
    part_groups_.clear();
    parts_.clear();
    for (int rank = 0; rank < size; ++rank) {
      part_groups_.push_back(std::make_unique<TableGroup>(part_table_, rank, size));
      parts_.push_back(std::make_unique<NcclComms>(
          nccl_, *part_groups_.back(),
          split[static_cast<size_t>(ranks[static_cast<size_t>(rank)])].value()));
    }
    std::vector<int> all(ranks.size());
    std::iota(all.begin(), all.end(), 0);
    each(all, [&](int rank) {
      const auto i = static_cast<size_t>(rank);
      const Error error = parts_[i]->make(devices[i], kNoPeer, soon());
      EXPECT_FALSE(error) << error.what();
    });
  }
  size_t alive_in_parts() { return nccl_.alive() - kSize; }

  Table part_table_;
  std::vector<std::unique_ptr<TableGroup>> part_groups_;
  std::vector<std::unique_ptr<NcclComms>> parts_;
};

TEST_F(NcclSplitTest, IsWhatTheOthersFirstOpTakes) {
  make_all();
  nccl_.set_lag(3);
  const auto made = split({{2, 0}, {1}, {2, 0}});
  for (const Split& one : made) {
    ASSERT_TRUE(one.ok()) << one.error().what();
    ASSERT_NE(one.value(), nullptr);
    EXPECT_EQ(one.value()->device(), 0);
  }
  const int inits = nccl_.calls("init_rank");
  begin({2, 0}, made, {0, 0});
  EXPECT_EQ(nccl_.calls("init_rank"), inits);
  EXPECT_EQ(alive_in_parts(), 3u);
  each({0, 1}, [&](int rank) {
    EXPECT_FALSE(parts_[static_cast<size_t>(rank)]->make(7, kNoPeer, soon())) << "another device";
  });
  EXPECT_EQ(nccl_.calls("init_rank"), inits + 2);
}

TEST_F(NcclSplitTest, LeavesARankOfNoPartWithNothing) {
  make_all();
  const auto made = split({{0, 2}, {0, 2}, {0, 2}});
  ASSERT_TRUE(made[1].ok());
  EXPECT_EQ(made[1].value(), nullptr);
  EXPECT_EQ(alive_in_parts(), 2u);
  EXPECT_EQ(nccl_.calls("split"), kSize);
}

TEST_F(NcclSplitTest, IsMadeAnewWhereARankHasAnotherDevice) {
  make_all();
  const auto made = split({{0, 1}, {0, 1}, {2}});
  const int inits = nccl_.calls("init_rank");
  begin({0, 1}, made, {0, 1});
  EXPECT_EQ(nccl_.calls("init_rank"), inits + 2);
  EXPECT_NE(parts_[1]->find(1, kNoPeer, Use::kCollectives), nullptr);
}

TEST_F(NcclSplitTest, IsGoneWithWhomItWasFor) {
  make_all();
  auto made = split({{0, 1}, {0, 1}, {2}});
  made.clear();
  EXPECT_EQ(alive_in_parts(), 0u);
}

TEST_F(NcclSplitTest, NamesWhoCallsOtherParts) {
  make_all();
  for (const Split& one : split({{0, 1}, {1, 2}, {1, 2}})) {
    ASSERT_FALSE(one.ok());
    EXPECT_EQ(one.error().kind(), ErrorKind::kInvalidArgument);
    EXPECT_NE(one.error().message().find("rank 0 is in one of 2 ranks"), std::string::npos)
        << one.error().message();
  }
  EXPECT_EQ(nccl_.calls("split"), 0);
  for (const Split& one : split({{0, 1}, {0, 1}, {2}})) EXPECT_TRUE(one.ok()) << "again";
}

TEST_F(NcclSplitTest, NamesTheCallWhereARankFails) {
  make_all();
  nccl_.fail_next("split", NcclResult::kSystemError);
  std::atomic<int> failures{0}, ended{0};
  each({0, 1, 2}, [&](int rank) {
    const auto made = of(rank).split({0, 1, 2}, soon());
    ASSERT_FALSE(made.ok());
    if (made.error().kind() == ErrorKind::kAborted) {
      ++ended;
      return;
    }
    ++failures;
    EXPECT_NE(made.error().message().find("ncclCommSplit for 3 ranks: NCCL's error 2"),
              std::string::npos)
        << made.error().message();
    for (int other = 0; other < kSize; ++other) of(other).abort();  // like the group
  });
  EXPECT_EQ(failures, 1);
  EXPECT_EQ(ended, kSize - 1);
  EXPECT_EQ(nccl_.alive(), 0u);
}

TEST_F(NcclSplitTest, EndsAtTheDeadlineWhereARankGoesNoFurther) {
  make_all();
  each({0, 1, 2}, [&](int rank) {
    if (rank != 0) {
      const SplitPart part = part_of(rank, kSize, {0, 1, 2});
      (void)table_.exchange(rank, {0, 1, 2}, std::as_bytes(std::span(&part, 1)), soon());
      return;
    }
    const auto made = of(0).split({0, 1, 2}, Clock::now() + std::chrono::seconds(1));
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().kind(), ErrorKind::kTimeout);
    EXPECT_NE(made.error().message().find("ncclCommSplit for 3 ranks"), std::string::npos)
        << made.error().message();
  });
  EXPECT_EQ(nccl_.alive(), kSize - 1u) << "it waits in none that the others have left";
  EXPECT_EQ(of(0).find(0, kNoPeer, Use::kCollectives), nullptr);
}

TEST_F(NcclSplitTest, EndsWhereTheGroupDoesMeanwhile) {
  make_all();
  const NcclComm broken = of(2).find(0, kNoPeer, Use::kCollectives);
  nccl_.break_comm(broken, NcclResult::kRemoteError);  // so that it does not proceed there
  nccl_.set_lag(1 << 30);
  std::thread aborts([&] {
    while (nccl_.calls("split") < kSize) std::this_thread::yield();
    for (const int rank : {0, 1}) of(rank).abort();
  });
  const auto made = split({{0, 1, 2}, {0, 1, 2}, {0, 1, 2}});
  aborts.join();
  for (const size_t rank : {0u, 1u}) EXPECT_EQ(made[rank].error().kind(), ErrorKind::kAborted);
  EXPECT_EQ(made[2].error().kind(), ErrorKind::kPeerLost);
  EXPECT_EQ(nccl_.alive(), 0u);
}

TEST_F(NcclSplitTest, OutlivesWhatItWasSplitOff) {
  make_all();
  const auto made = split({{0, 1}, {0, 1}, {2}});
  for (int rank = 0; rank < kSize; ++rank) of(rank).abort();
  begin({0, 1}, made, {0, 0});
  EXPECT_EQ(nccl_.alive(), 3u) << "two of one part, one that nobody took";
}

TEST_F(NcclCommsTest, MakeErrorsOfResults) {
  each({0, 1}, [&](int rank) { EXPECT_FALSE(of(rank).make(0, 1 - rank, soon())); });
  const NcclComm comm = of(0).find(0, 1, Use::kSends);
  EXPECT_FALSE(of(0).error_of(NcclResult::kSuccess, comm, "send", soon()));
  EXPECT_FALSE(of(0).error_of(NcclResult::kInProgress, comm, "send", soon())) << "which ends soon";
  EXPECT_EQ(of(0).error_of(NcclResult::kInvalidUsage, comm, "send", soon()).kind(),
            ErrorKind::kNotSupported);
  const Error error = of(0).error_of(NcclResult::kSystemError, comm, "send to 1", soon());
  EXPECT_EQ(error.kind(), ErrorKind::kSystem);
  EXPECT_NE(error.message().find("send to 1: NCCL's error 2"), std::string::npos);
}

}  // namespace
}  // namespace ringdist::gpu
