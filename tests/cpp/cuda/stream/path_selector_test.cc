#include "cuda/stream/path_selector.h"

#include <gtest/gtest.h>

#include <string>

#include "support/fake_cuda.h"
#include "support/fake_runner_delegate.h"
#include "support/fake_streams.h"

namespace ringdist::gpu {
namespace {

struct NoPath final : DevicePath {
  Error prepare(const DeviceStream&, const OpSpec&, TimePoint) override {
    ++prepared;
    return {};
  }
  Error enqueue(const DeviceOp&, Stream, KeptAlive&) override { return {}; }
  Error check() override { return {}; }
  Result<MakeDevicePath> split(const std::vector<int>&, TimePoint) override { return of_a_split; }
  Error captured(const OpSpec&) const override { return uncaptured; }
  void abort() override { aborted = true; }

  MakeDevicePath of_a_split;
  Error uncaptured;
  int prepared = 0;
  bool aborted = false;
};

class PathSelectorTest : public testing::Test {
 protected:
  std::shared_ptr<PathSelector> make(NcclInfo found,
                                     PathSelector::Wanted wanted = PathSelector::Wanted::kAny) {
    return std::make_shared<PathSelector>(cuda_, group_, std::move(found), ways(), wanted);
  }
  PathFactories ways() {
    return {[this](RunnerDelegate&) { return nccl_; }, [this](RunnerDelegate&) { return host_; }};
  }
  static Error prepare(DevicePath& way) { return way.prepare({}, {}, TimePoint::max()); }
  // Gives rank 1 another device. The device number is the first byte of its contribution.
  void give_each_its_own() {
    group_.others = [](FakeRunnerDelegate::Exchanged& all) { all[1][0] = std::byte{1}; };
  }

  FakeStreams streams_;
  FakeCuda cuda_{streams_};
  FakeRunnerDelegate group_{0, 2};
  const std::shared_ptr<NoPath> nccl_ = std::make_shared<NoPath>();
  const std::shared_ptr<NoPath> host_ = std::make_shared<NoPath>();
};

TEST_F(PathSelectorTest, IsNcclWhereAllHaveItAndADeviceOfTheirOwn) {
  give_each_its_own();
  const auto way = make({22907, "", false});
  ASSERT_FALSE(prepare(*way));
  ASSERT_FALSE(prepare(*way));
  EXPECT_EQ(nccl_->prepared, 2);
  EXPECT_EQ(group_.exchanges, 1);
}

TEST_F(PathSelectorTest, IsTheHostWhereRanksShareADevice) {
  const auto way = make({22907, "", false});
  ASSERT_FALSE(prepare(*way));
  EXPECT_EQ(host_->prepared, 1);
}

TEST_F(PathSelectorTest, IsNcclWhereItLetsRanksShareADevice) {
  const auto way = make({23003, "", true});
  ASSERT_FALSE(prepare(*way));
  EXPECT_EQ(nccl_->prepared, 1);
}

TEST_F(PathSelectorTest, IsTheHostWhereOneHasNoNccl) {
  group_.others = [](FakeRunnerDelegate::Exchanged& all) {
    all[1][0] = std::byte{1};
    for (size_t i = 16; i < 20; ++i) all[1][i] = std::byte{0};  // its version
  };
  const auto way = make({22907, "", false});
  ASSERT_FALSE(prepare(*way));
  EXPECT_EQ(host_->prepared, 1);
}

TEST_F(PathSelectorTest, NamesWhatIsInTheWayOfNcclWhereThatIsWanted) {
  const auto way = make({0, "libnccl.so.2 is not there" + std::string(300, 'x'), false},
                        PathSelector::Wanted::kNccl);
  const Error error = prepare(*way);
  ASSERT_TRUE(error);
  EXPECT_EQ(error.kind(), ErrorKind::kNotSupported);
  EXPECT_NE(error.message().find("rank 0 has no NCCL (libnccl.so.2 is not there"),
            std::string::npos)
      << error.message();
}

TEST_F(PathSelectorTest, NamesADeviceThatRanksShare) {
  const auto way = make({22907, "", false}, PathSelector::Wanted::kNccl);
  const Error error = prepare(*way);
  ASSERT_TRUE(error);
  EXPECT_NE(error.message().find("rank 0 and rank 1 use the same device, fake:0"),
            std::string::npos)
      << error.message();
}

TEST_F(PathSelectorTest, IsTheHostWhereThatIsWanted) {
  give_each_its_own();
  const auto way = make({22907, "", false}, PathSelector::Wanted::kHost);
  ASSERT_FALSE(prepare(*way));
  EXPECT_EQ(host_->prepared, 1);
}

// Two ranks that send to each other need not wait for the others, nor use their path.
TEST_F(PathSelectorTest, IsChosenForEachPeerByItself) {
  FakeRunnerDelegate three(0, 3);
  three.others = [](FakeRunnerDelegate::Exchanged& all) { all[1][0] = std::byte{1}; };
  const auto way = std::make_shared<PathSelector>(cuda_, three, NcclInfo{22907, "", false}, ways(),
                                                  PathSelector::Wanted::kAny);
  OpSpec send;
  send.kind = Collective::kPointToPoint;
  send.envelope = Envelope{1, 0, true};
  ASSERT_FALSE(way->prepare({}, send, TimePoint::max()));
  EXPECT_EQ(nccl_->prepared, 1);
  three.others = nullptr;  // all on one device
  ASSERT_FALSE(prepare(*way));
  EXPECT_EQ(host_->prepared, 1);
  host_->uncaptured = Error(ErrorKind::kNotSupported, "of no graph");
  EXPECT_FALSE(way->captured(send));
  EXPECT_EQ(way->captured({}).message(), "of no graph");
  EXPECT_EQ(three.exchanges, 2);
}

TEST_F(PathSelectorTest, IsOneForAllOpsOfTwoRanks) {
  const auto way = make({22907, "", false});
  OpSpec send;
  send.envelope = Envelope{1, 0, true};
  ASSERT_FALSE(way->prepare({}, send, TimePoint::max()));
  ASSERT_FALSE(prepare(*way));
  EXPECT_EQ(host_->prepared, 2);
  EXPECT_EQ(group_.exchanges, 1);
}

TEST_F(PathSelectorTest, IsChosenAgainByAGroupThatIsSplitOff) {
  give_each_its_own();
  const auto way = make({22907, "", false});
  const auto split = [&] { return way->split({0, 1}, TimePoint::max()).value(); };
  const auto theirs = std::make_shared<NoPath>();
  nccl_->of_a_split = [theirs](RunnerDelegate&) { return theirs; };
  EXPECT_EQ(split(), nullptr) << "nothing was called yet";
  ASSERT_FALSE(prepare(*way));
  const auto other = split()(group_);
  ASSERT_FALSE(prepare(*other));
  EXPECT_EQ(theirs->prepared, 1);
  EXPECT_EQ(group_.exchanges, 2);
  group_.others = nullptr;  // the ranks share a device from here on
  ASSERT_FALSE(prepare(*split()(group_)));
  EXPECT_EQ(host_->prepared, 1);
}

TEST_F(PathSelectorTest, HasNothingToSplitWhereItIsTheHost) {
  const auto way = make({22907, "", false});
  host_->of_a_split = nccl_->of_a_split = [this](RunnerDelegate&) { return host_; };
  ASSERT_FALSE(prepare(*way));
  EXPECT_EQ(way->split({0, 1}, TimePoint::max()).value(), nullptr);
}

TEST_F(PathSelectorTest, NeedsASource) {
  const auto way = make({22907, "", false});
  OpSpec receive;
  receive.envelope = Envelope{Envelope::kAnySource, 0, false};
  EXPECT_EQ(way->prepare({}, receive, TimePoint::max()).kind(), ErrorKind::kNotSupported);
}

TEST_F(PathSelectorTest, IsChosenAgainAfterAFailedExchange) {
  group_.fails = Error(ErrorKind::kTimeout, "made up");
  const auto way = make({22907, "", false});
  EXPECT_TRUE(prepare(*way));
  group_.fails = {};
  EXPECT_FALSE(prepare(*way));
}

TEST_F(PathSelectorTest, IsAbortedAlsoBeforeItIsChosen) {
  const auto way = make({22907, "", false});
  way->abort();
  EXPECT_FALSE(prepare(*way));
  EXPECT_TRUE(host_->aborted);
}

}  // namespace
}  // namespace ringdist::gpu
