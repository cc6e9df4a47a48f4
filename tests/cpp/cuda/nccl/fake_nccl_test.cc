// Tests of FakeNccl against the behaviour of NCCL.
#include "support/fake_nccl.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support/fake_streams.h"

namespace ringdist::gpu {
namespace {

class FakeNcclTest : public testing::Test {
 protected:
  static constexpr size_t kSize = 3;
  using Values = std::vector<int32_t>;

  void SetUp() override {
    comms_ = make(nccl_);
    for (size_t rank = 0; rank < kSize; ++rank) streams_of_.push_back(streams_.make());
  }
  std::vector<NcclComm> make(FakeNccl& nccl) {
    NcclUniqueId id;
    EXPECT_EQ(nccl.unique_id(&id), NcclResult::kSuccess);
    std::vector<NcclComm> out(kSize);
    for (size_t rank = 0; rank < kSize; ++rank)
      EXPECT_EQ(nccl.init_rank(&out[rank], kSize, id, static_cast<int>(rank)),
                NcclResult::kInProgress);
    return out;
  }
  // Returns true if the call succeeded. A call that does not block may also still be in progress.
  static bool goes_on(NcclResult result) {
    return result == NcclResult::kSuccess || result == NcclResult::kInProgress;
  }
  NcclResult state(NcclComm comm) {
    NcclResult out = NcclResult::kInternalError;
    EXPECT_EQ(nccl_.async_error(comm, &out), NcclResult::kSuccess);
    return out;
  }
  NcclResult sum(size_t rank, Values& values) {
    return nccl_.all_reduce(values.data(), values.data(), values.size(), NcclType::kInt32,
                            NcclReduce::kSum, comms_[rank], streams_of_[rank]);
  }
  NcclResult send(size_t from, int to, const Values& values) {
    return nccl_.send(values.data(), values.size(), NcclType::kInt32, to, comms_[from],
                      streams_of_[from]);
  }
  NcclResult receive(size_t to, int from, Values& values) {
    return nccl_.recv(values.data(), values.size(), NcclType::kInt32, from, comms_[to],
                      streams_of_[to]);
  }
  // Runs an allreduce over one value of each rank and returns the result.
  template <typename T>
  T reduced(NcclType type, NcclReduce op, std::vector<T> values) {
    for (size_t rank = 0; rank < kSize; ++rank)
      EXPECT_TRUE(goes_on(nccl_.all_reduce(&values[rank], &values[rank], 1, type, op, comms_[rank],
                                           streams_of_[rank])));
    EXPECT_FALSE(streams_.progress());
    for (const T& value : values) EXPECT_EQ(value, values[0]);
    return values[0];
  }

  FakeStreams streams_;
  FakeNccl nccl_{streams_};
  std::vector<NcclComm> comms_;
  std::vector<void*> streams_of_;
};

TEST_F(FakeNcclTest, CommunicatorsAreThereWhenAllRanksHaveCome) {
  NcclUniqueId id;
  ASSERT_EQ(nccl_.unique_id(&id), NcclResult::kSuccess);
  NcclComm first = nullptr, second = nullptr;
  (void)nccl_.init_rank(&first, 2, id, 0);
  EXPECT_EQ(state(first), NcclResult::kInProgress);
  (void)nccl_.init_rank(&second, 2, id, 1);
  EXPECT_EQ(state(first), NcclResult::kSuccess);
  nccl_.break_comm(first, NcclResult::kRemoteError);
  EXPECT_EQ(state(first), NcclResult::kRemoteError);
  EXPECT_EQ(state(second), NcclResult::kSuccess);
  EXPECT_EQ(nccl_.alive(), kSize + 2);
  (void)nccl_.destroy(first);
  EXPECT_EQ(nccl_.alive(), kSize + 1);
}

TEST_F(FakeNcclTest, IsSplitWhenAllRanksHaveCome) {
  std::vector<NcclComm> parts(kSize);
  const auto split = [&](size_t rank, int color, int key) {
    return nccl_.split(comms_[rank], color, key, &parts[rank]);
  };
  EXPECT_TRUE(goes_on(split(0, 5, 1)));
  EXPECT_TRUE(goes_on(split(2, 5, 0)));
  EXPECT_EQ(state(comms_[0]), NcclResult::kInProgress);
  EXPECT_EQ(parts[0], nullptr);
  EXPECT_TRUE(goes_on(split(1, 7, 0)));
  for (const NcclComm comm : comms_) EXPECT_EQ(state(comm), NcclResult::kSuccess);
  EXPECT_EQ(nccl_.alive(), 2 * kSize);
  // Rank 2 is the first rank of its part.
  std::vector<Values> values{{1}, {2}, {3}};
  for (const size_t rank : {0u, 2u})
    EXPECT_TRUE(goes_on(nccl_.broadcast(values[rank].data(), values[rank].data(), 1,
                                        NcclType::kInt32, 0, parts[rank], streams_of_[rank])));
  EXPECT_FALSE(streams_.progress());
  EXPECT_EQ(values, (std::vector<Values>{{3}, {2}, {3}}));
}

TEST_F(FakeNcclTest, IsNeverSplitWhereARankWasAborted) {
  std::vector<NcclComm> parts(kSize);
  EXPECT_TRUE(goes_on(nccl_.split(comms_[0], 0, 0, &parts[0])));
  (void)nccl_.abort(comms_[0]);
  for (const size_t rank : {1u, 2u})
    EXPECT_TRUE(goes_on(nccl_.split(comms_[rank], 0, static_cast<int>(rank), &parts[rank])));
  EXPECT_EQ(state(comms_[1]), NcclResult::kInProgress);
  EXPECT_EQ(parts, (std::vector<NcclComm>(kSize, nullptr)));
}

TEST_F(FakeNcclTest, CollectivesWaitForAllRanksInTheOrderOfTheirCalls) {
  std::vector<Values> a{{1}, {2}, {3}}, b{{10}, {20}, {30}};
  for (const size_t rank : {0u, 1u}) ASSERT_TRUE(goes_on(sum(rank, a[rank])));
  for (const size_t rank : {0u, 1u}) ASSERT_TRUE(goes_on(sum(rank, b[rank])));
  EXPECT_TRUE(streams_.progress());
  EXPECT_EQ(a[0], Values{1});
  ASSERT_TRUE(goes_on(sum(2, a[2])));
  EXPECT_TRUE(streams_.progress());
  EXPECT_EQ(a, (std::vector<Values>{{6}, {6}, {6}}));
  EXPECT_EQ(b[0], Values{10});
  ASSERT_TRUE(goes_on(sum(2, b[2])));
  EXPECT_FALSE(streams_.progress());
  EXPECT_EQ(b, (std::vector<Values>{{60}, {60}, {60}}));
}

TEST_F(FakeNcclTest, MovesPartsToWhereTheyBelong) {
  std::vector<Values> all(kSize, Values(kSize)), part(kSize, Values(1)), told{{7}, {8}, {9}};
  for (size_t rank = 0; rank < kSize; ++rank) {
    const Values own{static_cast<int32_t>(rank)};
    part[rank] = own;
    (void)nccl_.all_gather(part[rank].data(), all[rank].data(), 1, NcclType::kInt32, comms_[rank],
                           streams_of_[rank]);
    (void)nccl_.reduce_scatter(all[rank].data(), part[rank].data(), 1, NcclType::kInt32,
                               NcclReduce::kSum, comms_[rank], streams_of_[rank]);
    (void)nccl_.broadcast(told[rank].data(), told[rank].data(), 1, NcclType::kInt32, 2,
                          comms_[rank], streams_of_[rank]);
    (void)nccl_.reduce(told[rank].data(), told[rank].data(), 1, NcclType::kInt32, NcclReduce::kSum,
                       1, comms_[rank], streams_of_[rank]);
  }
  EXPECT_FALSE(streams_.progress());
  for (const Values& one : all) EXPECT_EQ(one, (Values{0, 1, 2}));
  EXPECT_EQ(part, (std::vector<Values>{{0}, {3}, {6}}));
  EXPECT_EQ(told, (std::vector<Values>{{9}, {27}, {9}}));
}

TEST_F(FakeNcclTest, ReducesTheTypesOfNccl) {
  // The sum is 1 + 2 + 0.5, the average is that of 1, 2 and 6.
  EXPECT_EQ(reduced<uint16_t>(NcclType::kFloat16, NcclReduce::kSum, {0x3c00, 0x4000, 0x3800}),
            0x4300);
  EXPECT_EQ(reduced<uint16_t>(NcclType::kBfloat16, NcclReduce::kAvg, {0x3f80, 0x4000, 0x40c0}),
            0x4040);
  EXPECT_EQ(reduced<double>(NcclType::kFloat64, NcclReduce::kProd, {2, 3, 4}), 24);
  EXPECT_EQ(reduced<int64_t>(NcclType::kInt64, NcclReduce::kMin, {2, -3, 4}), -3);
  EXPECT_EQ(reduced<uint8_t>(NcclType::kUint8, NcclReduce::kMax, {2, 200, 4}), 200);
}

TEST_F(FakeNcclTest, HasFp8FromItsVersionOn) {
  constexpr uint8_t kOne = 0x38, kTwo = 0x40, kFour = 0x48;  // e4m3
  EXPECT_EQ(reduced<uint8_t>(NcclType::kFloat8E4M3, NcclReduce::kSum, {kOne, kOne, kTwo}), kFour);
  FakeNccl old(streams_, 22300);
  const auto comms = make(old);
  uint8_t value = kOne;
  EXPECT_EQ(old.all_reduce(&value, &value, 1, NcclType::kFloat8E4M3, NcclReduce::kSum, comms[0],
                           streams_of_[0]),
            NcclResult::kInvalidArgument);
}

TEST_F(FakeNcclTest, SendsMeetReceivesOfTheirPairInOrder) {
  const Values first{1}, second{2}, other{3};
  std::vector<Values> got(3, Values(1));
  ASSERT_TRUE(goes_on(send(0, 2, first)));
  ASSERT_TRUE(goes_on(send(0, 2, second)));
  ASSERT_TRUE(goes_on(send(1, 2, other)));
  EXPECT_TRUE(streams_.progress());
  ASSERT_TRUE(goes_on(receive(2, 1, got[0])));
  ASSERT_TRUE(goes_on(receive(2, 0, got[1])));
  ASSERT_TRUE(goes_on(receive(2, 0, got[2])));
  EXPECT_FALSE(streams_.progress());
  EXPECT_EQ(got, (std::vector<Values>{{3}, {1}, {2}}));
}

// Each rank sends before it receives. As separate calls this would deadlock.
TEST_F(FakeNcclTest, AGroupIsOnePieceOfWork) {
  const std::vector<Values> out{{1}, {2}};
  std::vector<Values> in(2, Values(1)), own(2, Values(1));
  for (const int rank : {0, 1}) {
    const auto at = static_cast<size_t>(rank);
    for (int nested = 0; nested < 2; ++nested) (void)nccl_.group_start();
    (void)send(at, 1 - rank, out[at]);
    (void)send(at, rank, out[at]);
    (void)nccl_.group_end();
    EXPECT_TRUE(streams_.idle(streams_of_[at]));
    (void)receive(at, 1 - rank, in[at]);
    (void)receive(at, rank, own[at]);
    EXPECT_TRUE(goes_on(nccl_.group_end()));
    EXPECT_EQ(streams_.queued(streams_of_[at]), 1u);
  }
  EXPECT_FALSE(streams_.progress());
  EXPECT_EQ(in, (std::vector<Values>{{2}, {1}}));
  EXPECT_EQ(own, out);
}

TEST_F(FakeNcclTest, AGroupWithACallThatFailedStartsNothing) {
  std::vector<Values> values{{1}, {2}, {3}};
  Values other{5};
  (void)nccl_.group_start();
  ASSERT_TRUE(goes_on(sum(0, other)));
  nccl_.fail_next("all_reduce", NcclResult::kInternalError);
  EXPECT_EQ(sum(0, other), NcclResult::kInternalError);
  EXPECT_EQ(nccl_.group_end(), NcclResult::kInternalError);
  EXPECT_TRUE(streams_.idle(streams_of_[0]));
  // The failed call does not count. The next call meets the first calls of the other ranks.
  for (size_t rank = 0; rank < kSize; ++rank) ASSERT_TRUE(goes_on(sum(rank, values[rank])));
  EXPECT_FALSE(streams_.progress());
  EXPECT_EQ(values, (std::vector<Values>{{6}, {6}, {6}}));
  EXPECT_EQ(nccl_.calls("all_reduce"), 5);
}

TEST_F(FakeNcclTest, RefusesWhatNcclRefuses) {
  Values value{1};
  EXPECT_EQ(nccl_.send(value.data(), 1, NcclType::kInt32, 1, comms_[0], nullptr),
            NcclResult::kInvalidArgument);
  EXPECT_EQ(send(0, kSize, value), NcclResult::kInvalidArgument);
  EXPECT_EQ(receive(0, -1, value), NcclResult::kInvalidArgument);
  (void)nccl_.abort(comms_[0]);
  EXPECT_EQ(send(0, 1, value), NcclResult::kInvalidArgument);
  NcclResult unused = NcclResult::kSuccess;
  EXPECT_EQ(nccl_.async_error(comms_[0], &unused), NcclResult::kInvalidArgument);
  EXPECT_NONFATAL_FAILURE((void)nccl_.destroy(comms_[0]), "not there");
}

TEST_F(FakeNcclTest, FailsTheTestWhereNcclWouldHangOrGoAstray) {
  std::vector<Values> values{{1}, {2}, {3, 4}};
  for (size_t rank = 0; rank < kSize; ++rank) (void)sum(rank, values[rank]);
  testing::TestPartResultArray failures;
  {
    const testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &failures);
    streams_.progress();
  }
  ASSERT_GT(failures.size(), 0);
  EXPECT_NE(std::string(failures.GetTestPartResult(0).message()).find("different things"),
            std::string::npos);
}

TEST_F(FakeNcclTest, AnAbortLetsTheRankGoAndNoOther) {
  auto out = std::make_unique<Values>(Values{1, 2});
  Values in(2), mine{5};
  ASSERT_TRUE(goes_on(send(0, 1, *out)));
  ASSERT_TRUE(goes_on(sum(2, mine)));
  EXPECT_TRUE(streams_.progress());
  (void)nccl_.abort(comms_[0]);
  EXPECT_TRUE(streams_.progress());
  EXPECT_TRUE(streams_.idle(streams_of_[0]));
  out.reset();  // no work reads it any more
  ASSERT_TRUE(goes_on(receive(1, 0, in)));
  EXPECT_TRUE(streams_.progress());
  EXPECT_FALSE(streams_.idle(streams_of_[1])) << "rank 0 will never come";
  EXPECT_EQ(in, (Values{0, 0}));
  for (const size_t rank : {1u, 2u}) (void)nccl_.abort(comms_[rank]);
  EXPECT_FALSE(streams_.progress());
}

}  // namespace
}  // namespace ringdist::gpu
