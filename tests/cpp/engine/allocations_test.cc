// Numbers of allocations of blocking ops on the thread of the caller, after similar ops have run
// before. The operator new of support/replaced_new.h counts them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "support/failing_allocation.h"
#include "support/ranks.h"

namespace ringdist {
namespace {

constexpr size_t kNever = SIZE_MAX / 2;
constexpr int kBatches = 20;
constexpr int kCountedOps = 50;

using Make = std::function<OpRequest(std::vector<float>& data)>;

// Returns the minimum of a few batches, because a waiting caller may also do other work of the
// lane.
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

// The message of a barrier is in scratch memory that may outlive the op.
TEST(Allocations, ABarrierHoldsScratch) {
  expect_allocations(2, [](std::vector<float>&) {
    OpRequest request;
    request.kind = Collective::kBarrier;
    request.dtype = DType::kBytes;
    return request;
  });
}

// Counts allocations of sends by rank 0. If `fresh`, each send has a tag that was not used before.
size_t allocations_of_sends(bool fresh) {
  RanksOptions options;
  for (int rank = 0; rank < options.size; ++rank) options.transports[rank] = {"shm"};
  Ranks ranks(options);
  size_t counted = 0;
  ranks.run([&](int rank) {
    if (rank > 1) return;
    int32_t tag = 0;
    const size_t count = allocations_per_batch(ranks[rank], [&](std::vector<float>& data) {
      OpRequest request = allreduce_request(data, DType::kFloat32, ReduceOp::kNone);
      request.kind = Collective::kPointToPoint;
      request.envelope = Envelope{1 - rank, fresh ? ++tag : tag, /*sends=*/rank == 0};
      if (rank == 0) std::swap(request.input, request.output);  // the request was built in place
      return request;
    });
    if (rank == 0) counted = count;
  });
  return counted;
}

TEST(Allocations, NothingIsKeptOfATag) {
#ifdef RINGDIST_SANITIZED
  GTEST_SKIP() << "under sanitizers no memory is kept for the next op";
#endif
  const size_t again = allocations_of_sends(/*fresh=*/false);
  EXPECT_LT(again, kNever);
  EXPECT_EQ(allocations_of_sends(/*fresh=*/true), again);
}

}  // namespace
}  // namespace ringdist
