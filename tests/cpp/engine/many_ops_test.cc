// Mismatch detection with many ops in flight, more than a group remembers of ended ops.
#include <gtest/gtest.h>

#include <latch>
#include <thread>

#include "engine/communicator.h"
#include "support/hooked_store.h"
#include "support/ranks.h"

namespace ringdist {
namespace {

constexpr int kManyOps = 1500;

// On each rank, calls the first op and kManyOps more before the ranks have found each other.
// Returns the errors of the first op.
std::vector<Error> errors_of_the_first(
    const std::function<OpRequest(int rank, std::vector<int64_t>& data)>& make_first) {
  Ranks ranks({});
  std::latch opened(2);  // neither rank finds the other before both are ready
  const auto store = std::make_shared<HookedStore>(ranks.store(), [&](std::string_view what) {
    if (what == "check") opened.wait();
  });
  const auto group = ranks.another("many", {{0, store}, {1, store}});
  std::vector<Error> out(static_cast<size_t>(ranks.size()));
  ranks.run([&](int rank) {
    std::vector<std::vector<int64_t>> data(kManyOps + 1, std::vector<int64_t>(4, rank + 1));
    std::vector<std::shared_ptr<Op>> ops{
        group[rank]->submit(make_first(rank, data[0]), false).value()};
    for (int i = 1; i <= kManyOps; ++i)
      ops.push_back(group[rank]
                        ->submit(allreduce_request(data[static_cast<size_t>(i)], DType::kInt64,
                                                   ReduceOp::kSum),
                                 false)
                        .value());
    opened.count_down();
    for (const auto& op : ops) (void)wait_op(*group[rank], *op);
    out[static_cast<size_t>(rank)] = ops[0]->error();
  });
  return out;
}

TEST(ManyOps, ManyOpsInFlightAreCompared) {
  const auto errors = errors_of_the_first([](int rank, std::vector<int64_t>& data) {
    return allreduce_request(data, DType::kInt64, rank == 0 ? ReduceOp::kSum : ReduceOp::kMax);
  });
  for (const Error& error : errors) {
    ASSERT_TRUE(error) << "numbers instead of an error";
    EXPECT_EQ(error.kind(), ErrorKind::kMismatch) << error.what();
  }
}

// Callers that wait begin their ops themselves, while other callers post them. The group asserts
// that the numbers stay in order.
TEST(ManyOps, ThreadsThatWaitAndThreadsThatDoNotShareAGroup) {
  Ranks ranks({});
  ranks.run([&](int rank) {
    const auto call = [&](bool waits) {
      std::vector<std::vector<int64_t>> data(kManyOps, std::vector<int64_t>(3, 1));
      std::vector<std::shared_ptr<Op>> ops;
      for (auto& one : data) {
        ops.push_back(ranks[rank]
                          .submit(allreduce_request(one, DType::kInt64, ReduceOp::kSum), waits)
                          .value());
        if (waits) (void)wait_op(ranks[rank], *ops.back());
      }
      for (const auto& op : ops) EXPECT_FALSE(wait_op(ranks[rank], *op));
      for (const auto& one : data) EXPECT_EQ(one, std::vector<int64_t>(3, 2));
    };
    std::thread other([&] { call(false); });
    std::thread third([&] { call(true); });
    call(true);
    other.join();
    third.join();
  });
}

// Each rank waits for data of the other, so only the desync detector can find the mismatch.
TEST(ManyOps, TheOldestOfManyOpsIsAnnounced) {
  const auto errors = errors_of_the_first([](int rank, std::vector<int64_t>& data) {
    OpRequest request = allreduce_request(data, DType::kInt64, ReduceOp::kNone);
    request.kind = Collective::kBroadcast;
    request.root = 1 - rank;
    return request;
  });
  for (const Error& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error.kind(), ErrorKind::kMismatch) << error.what();
  }
}

}  // namespace
}  // namespace ringdist
