// The progress engine after failures: exceptions on its thread, and tensors that it must not be
// the last to own.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <latch>
#include <thread>

#include "support/ranks.h"

namespace ringdist {
namespace {

std::string thread_name() {
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return name;
}

void expect_sum_works(Ranks& ranks, std::vector<std::shared_ptr<Communicator>>& group) {
  ranks.run([&](int rank) {
    std::vector<float> data(1000, 1.0f);
    const Error error = run_op(*group[static_cast<size_t>(rank)],
                               allreduce_request(data, DType::kFloat32, ReduceOp::kSum));
    ASSERT_FALSE(error) << error.what();
    ASSERT_EQ(data[999], 2.0f);
  });
}

// The task may belong to any group, so all groups of the process fail on all ranks. Nothing else
// fails.
void throw_in_a_task(bool somebody_waits) {
  Ranks ranks({});
  ranks.run([&](int rank) {
    std::vector<float> data(100, 1.0f);
    ASSERT_FALSE(run_op(ranks[rank], allreduce_request(data, DType::kFloat32, ReduceOp::kSum)));
  });
  std::vector<float> data(100, 1.0f);
  auto op = ranks[0].submit(allreduce_request(data, DType::kFloat32, ReduceOp::kSum), false);
  ASSERT_TRUE(op.ok());
  std::jthread waiter;
  if (somebody_waits) {
    waiter = std::jthread([&] { (void)wait_op(ranks[0], *op.value()); });
    std::this_thread::sleep_for(Milliseconds(200));  // until it makes progress itself
  }
  ranks.context(0).progress().post([] { throw std::runtime_error("out of luck"); });
  for (int i = 0; i < 2000 && !op.value()->finished(); ++i)
    std::this_thread::sleep_for(Milliseconds(10));
  const Error error = op.value()->error();
  ASSERT_TRUE(error);
  EXPECT_EQ(error.kind(), ErrorKind::kSystem);
  EXPECT_NE(error.message().find("out of luck"), std::string::npos) << error.message();
  if (waiter.joinable()) waiter.join();
  // Rank 1 may complete the first op, because rank 0 had sent its part. The next one must fail.
  Error heard = run_op(ranks[1], allreduce_request(data, DType::kFloat32, ReduceOp::kSum));
  if (!heard) heard = run_op(ranks[1], allreduce_request(data, DType::kFloat32, ReduceOp::kSum));
  EXPECT_NE((heard ? heard.message() : "").find("out of luck"), std::string::npos);
  auto again = ranks.another("again");
  expect_sum_works(ranks, again);
}

TEST(ProgressEngine, AnExceptionOnItsThreadEndsTheGroups) {
  throw_in_a_task(/*somebody_waits=*/false);
}
TEST(ProgressEngine, AnExceptionInAWaitEndsTheGroups) { throw_in_a_task(/*somebody_waits=*/true); }

TEST(ProgressEngine, AnExceptionOfATaskKeepsNoOtherFromRunning) {
  Ranks ranks({});
  ProgressEngine& progress = ranks.context(0).progress();
  std::latch begun(1);
  std::latch go_on(1);
  std::latch ran(1);
  progress.post([&] {
    begun.count_down();
    go_on.wait();
  });
  begun.wait();
  progress.post([] { throw std::runtime_error("out of luck"); });
  progress.post([&] { ran.count_down(); });  // in the same batch
  go_on.count_down();
  ran.wait();
}

TEST(ProgressEngine, ItsThreadStaysWhereItIsTold) {
  Ranks ranks({});
  ProgressEngine& progress = ranks.context(0).progress();
  const CpuSet one = CpuSet::parse(std::to_string(sched_getcpu())).value();
  const auto expect_there = [&] {
    CpuSet seen;
    ASSERT_TRUE(progress.call([&] { seen = CpuSet::of(pthread_self()); }, Clock::now() + kHang));
    EXPECT_EQ(seen, one);
  };
  progress.set_affinity(one);
  expect_there();
  progress.set_affinity(CpuSet());
  progress.set_affinity(CpuSet::of(pthread_self()));
  expect_there();
  progress.stop();
  progress.set_affinity(one);  // its thread is gone
}

// Counts the thread that destroys it. Destroying a real tensor may need the GIL.
struct TensorOfOp {
  explicit TensorOfOp(std::atomic<int>& by_pool, std::atomic<int>& by_others)
      : by_pool_(by_pool), by_others_(by_others) {}
  ~TensorOfOp() { ++(thread_name() == "ringdist-task" ? by_pool_ : by_others_); }
  std::atomic<int>& by_pool_;
  std::atomic<int>& by_others_;
};

// More ops fail at once than the lane handles in one round, and no other owner holds them.
TEST(ProgressEngine, LetsGoOfNoTensorAfterAFailure) {
  constexpr int kOps = 100;
  std::atomic<int> by_pool{0};
  std::atomic<int> by_others{0};
  Ranks ranks({});
  ranks.run([&](int rank) {
    std::vector<float> data(100, 1.0f);
    ASSERT_FALSE(run_op(ranks[rank], allreduce_request(data, DType::kFloat32, ReduceOp::kSum)));
  });
  std::latch begun(1);
  std::latch go_on(1);
  ranks.context(0).progress().post([&] {
    begun.count_down();
    go_on.wait();
  });
  begun.wait();
  std::vector<float> data(100, 1.0f);
  for (int i = 0; i < kOps; ++i) {
    OpRequest request = allreduce_request(data, DType::kFloat32, ReduceOp::kSum);
    request.keep_alive = std::make_shared<TensorOfOp>(by_pool, by_others);
    ASSERT_TRUE(ranks[0].submit(std::move(request), /*will_wait=*/false).ok());
  }
  ranks[0].fail(Error(ErrorKind::kAborted, "for a test"));
  go_on.count_down();
  for (int i = 0; i < 2000 && by_pool + by_others < kOps; ++i)
    std::this_thread::sleep_for(Milliseconds(10));
  EXPECT_EQ(by_others, 0);
  EXPECT_EQ(by_pool, kOps);
}

}  // namespace
}  // namespace ringdist
