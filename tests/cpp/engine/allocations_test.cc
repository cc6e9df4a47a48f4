// How often a blocking op allocates on its caller's thread, once one like it was there before. The
// program's operator new counts (support/replaced_new.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "support/failing_allocation.h"
#include "support/ranks.h"

namespace ringdist {
namespace {

constexpr size_t kNever = SIZE_MAX / 2;
constexpr int kBatches = 20;
constexpr int kCountedOps = 50;

using Make = std::function<OpRequest(std::vector<float>& data)>;

// The least of a few batches: in a wait of the others' a caller may have the lane's other work to
// do.
size_t allocations_per_batch(Communicator& rank, const Make& make) {
  std::vector<float> data(16, 1.0f);
  size_t least = kNever;
  for (int batch = 0; batch < kBatches; ++batch) {
    test::Failures none{kNever};
    {
      const test::FailingAllocations counting(none);
      for (int i = 0; i < kCountedOps; ++i)
        if (run_op(rank, make(data))) return kNever;
    }
    least = std::min(least, kNever - none.first);
  }
  return least;
}

void expect_allocations(size_t each, const Make& make) {
#ifdef RINGDIST_SANITIZED
  GTEST_SKIP() << "under sanitizers no memory is kept for the next op";
#endif
  for (const char* transport : {"shm"}) {
    RanksOptions options;
    for (int rank = 0; rank < options.size; ++rank) options.transports[rank] = {transport};
    Ranks ranks(options);
    std::vector<size_t> counted(options.size);
    ranks.run([&](int rank) { counted[rank] = allocations_per_batch(ranks[rank], make); });
    for (const size_t count : counted) EXPECT_EQ(count, each * kCountedOps);
  }
}

TEST(Allocations, ASmallAllreduceMakesItsOp) {
  expect_allocations(1, [](std::vector<float>& data) {
    return allreduce_request(data, DType::kFloat32, ReduceOp::kSum);
  });
}

TEST(Allocations, SoDoesABroadcast) {
  expect_allocations(1, [](std::vector<float>& data) {
    OpRequest request = allreduce_request(data, DType::kFloat32, ReduceOp::kNone);
    request.kind = Collective::kBroadcast;
    return request;
  });
}

// Its token lies in scratch that may outlive it.
TEST(Allocations, ABarrierHoldsScratch) {
  expect_allocations(2, [](std::vector<float>&) {
    OpRequest request;
    request.kind = Collective::kBarrier;
    request.dtype = DType::kBytes;
    return request;
  });
}

}  // namespace
}  // namespace ringdist
