#include <gtest/gtest.h>

#include "cuda/stream/host_path.h"
#include "support/fake_cuda.h"
#include "support/fake_streams.h"

namespace ringdist::gpu {
namespace {

class PinnedPoolTest : public testing::Test {
 protected:
  FakeStreams streams_;
  FakeCuda cuda_{streams_};
  std::shared_ptr<PinnedPool> pool_ = std::make_shared<PinnedPool>(cuda_);
};

TEST_F(PinnedPoolTest, GivesTheSameMemoryAgain) {
  auto first = pool_->take(10'000).value();
  std::byte* const at = first.get();
  EXPECT_NE(pool_->take(10'000).value().get(), at);
  first.reset();
  EXPECT_EQ(pool_->take(9'000).value().get(), at);
  EXPECT_EQ(cuda_.alive(), 2u);
}

TEST_F(PinnedPoolTest, KeepsNoMoreThanItSays) {
  pool_->take(2 * PinnedPool::kMostKept).value().reset();
  EXPECT_EQ(cuda_.alive(), 0u);
}

TEST_F(PinnedPoolTest, TheLargestGoFirst) {
  auto small = pool_->take(1).value();
  const std::byte* const at = small.get();
  auto large = pool_->take(PinnedPool::kMostKept).value();
  large.reset();
  EXPECT_EQ(cuda_.alive(), 2u);
  small.reset();
  EXPECT_EQ(cuda_.alive(), 1u);
  EXPECT_EQ(pool_->take(1).value().get(), at);
}

TEST_F(PinnedPoolTest, LivesAsLongAsItsMemoryIsUsed) {
  auto memory = pool_->take(1).value();
  pool_.reset();
  memory.reset();
  EXPECT_EQ(cuda_.alive(), 0u);
}

TEST_F(PinnedPoolTest, SaysWhatCudaSays) {
  cuda_.fail_next("allocate_pinned");
  EXPECT_EQ(pool_->take(1).error().kind(), ErrorKind::kSystem);
  EXPECT_TRUE(pool_->take(1).ok());
}

}  // namespace
}  // namespace ringdist::gpu
