// Ops on devices of whole groups, from the callers' and the runner's view. For the state in a
// Group see group/on_device_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <thread>

#include "engine/fake_device_runner.h"
#include "rendezvous/store.h"
#include "support/compressed.h"

namespace ringdist::test {
namespace {

TEST(DeviceOps, EndWhenTheDeviceSaysSo) {
  DeviceRanks ranks(ranks_of(2));
  ranks.ranks().run([&](int rank) {
    std::vector<float> data(16, 1.0f);
    OpRequest request = on_device(data);
    const auto memory = std::make_shared<int>(0);
    request.keep_alive = memory;
    std::atomic<int> succeeded{0};
    request.on_end = [&](const Error& error) { succeeded += !error; };
    const auto op = submitted(ranks[rank], std::move(request));
    EXPECT_NE(op->device_work, nullptr);
    EXPECT_FALSE(ranks[rank].wait(*op, Milliseconds(20)));
    FakeDevice& device = ranks.device(rank);
    ASSERT_TRUE(device.await_started(1));
    EXPECT_EQ(device.op(0).number, 1u);
    EXPECT_EQ(device.op(0).text, "all_reduce #1 (float32, 16 elements, SUM, on cuda)");
    EXPECT_EQ(device.op(0).output.count(), 16);
    EXPECT_NE(device.op(0).plan.algorithm, nullptr);
    EXPECT_EQ(memory.use_count(), 2) << "the runner's and ours";
    device.end(0);
    EXPECT_FALSE(wait_op(ranks[rank], *op));
    EXPECT_EQ(succeeded, 1);
    EXPECT_EQ(memory.use_count(), 1);
  });
}

// The order also holds if host ops take numbers in between.
TEST(DeviceOps, StartInTheOrderOfTheirNumbers) {
  constexpr int kThreads = 4;
  constexpr int kEach = 30;
  DeviceRanks ranks(ranks_of(1));
  ranks.device(0).captures = true;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      std::vector<float> data(16, 1.0f);
      for (int n = 0; n < kEach; ++n) {
        if (i == 0) {
          EXPECT_FALSE(host_op(ranks[0]));
        } else {
          EXPECT_FALSE(wait_op(ranks[0], *submitted(ranks[0], on_device(data))));
        }
      }
    });
  for (auto& thread : threads) thread.join();
  const auto numbers = ranks.device(0).numbers();
  EXPECT_EQ(numbers.size(), (kThreads - 1) * kEach);
  EXPECT_TRUE(std::ranges::is_sorted(numbers, std::less_equal())) << "each once";
  EXPECT_EQ(ranks[0].sequence_number(), kThreads * kEach);
  EXPECT_EQ(ranks.device(0).made(), 1);
}

TEST(DeviceOps, OneThatIsCapturedEndsAtOnce) {
  DeviceRanks ranks(ranks_of(2));
  ranks.ranks().run([&](int rank) {
    ranks.device(rank).captures = true;
    std::vector<float> data(16, 1.0f);
    for (int i = 0; i < 10; ++i)
      EXPECT_FALSE(wait_op(ranks[rank], *submitted(ranks[rank], on_device(data))));
    EXPECT_FALSE(host_op(ranks[rank]));
  });
}

TEST(DeviceOps, AreRefusedWhereNothingRunsThem) {
  Ranks ranks({});
  ranks.run([&](int rank) {
    std::vector<float> data(16, 1.0f);
    OpRequest request = on_device(data);
    request.device_stream->device = 5;
    const Error error = run_op(ranks[rank], std::move(request));
    EXPECT_TRUE(says(error, "nothing that runs operations on device 5")) << text_of(error);
    EXPECT_EQ(error.kind(), ErrorKind::kNotSupported);
    EXPECT_FALSE(host_op(ranks[rank]));
    EXPECT_EQ(ranks[rank].sequence_number(), 1u);
  });
}

TEST(DeviceOps, ARunnerThatCannotBeMadeIsTriedAgain) {
  DeviceRanks ranks(ranks_of(1));
  ranks.device(0).make_error = Error(ErrorKind::kSystem, "no driver");
  ranks.device(0).captures = true;
  std::vector<float> data(16, 1.0f);
  const Error error = run_op(ranks[0], on_device(data));
  EXPECT_TRUE(says(error, "no driver")) << text_of(error);
  EXPECT_FALSE(run_op(ranks[0], on_device(data)));
  EXPECT_EQ(ranks[0].sequence_number(), 1u);
}

TEST(DeviceOps, WhatCannotBePreparedTakesNoNumber) {
  DeviceRanks ranks(ranks_of(2));
  ranks.ranks().run([&](int rank) {
    FakeDevice& device = ranks.device(rank);
    device.captures = true;
    device.prepare = [](RunnerDelegate&, const OpSpec& request, TimePoint) {
      EXPECT_TRUE(request.on_device);
      return request.kind == Collective::kAllreduce
                 ? Error()
                 : Error(ErrorKind::kNotSupported, "no such operation on devices");
    };
    std::vector<float> data(16, 1.0f);
    OpRequest request = on_device(data);
    request.kind = Collective::kBroadcast;
    request.reduce_op = ReduceOp::kNone;
    const Error error = run_op(ranks[rank], std::move(request));
    EXPECT_TRUE(says(error, "no such operation")) << text_of(error);
    EXPECT_FALSE(host_op(ranks[rank]));
    EXPECT_FALSE(run_op(ranks[rank], on_device(data)));
    EXPECT_EQ(ranks[rank].sequence_number(), 2u);
  });
}

TEST(DeviceOps, ASplitHasWhatTheRunnerMakesOfIt) {
  DeviceRanks ranks(ranks_of(3));
  const std::vector<int> part{2, 0};
  ranks.ranks().run([&](int rank) {
    FakeDevice& device = ranks.device(rank);
    device.captures = true;
    const auto of_part = std::make_shared<FakeDevice>();
    of_part->captures = true;
    int splits = 0;
    device.split = [&](const std::vector<int>& named) -> Result<MakeDeviceRunner> {
      EXPECT_EQ(named, part);
      ++splits;
      return rank == 1 ? MakeDeviceRunner() : FakeDevice::maker(of_part);
    };
    const auto split = [&](const std::string& name) {
      const auto store = std::make_shared<PrefixStore>(ranks.ranks().store(), name);
      auto made = ranks[rank].subgroup(part, store, name, Milliseconds(20000));
      EXPECT_TRUE(made.ok()) << text_of(made.error());
      return made.value();
    };
    std::vector<float> data(16, 1.0f);
    const auto before = split("before");
    EXPECT_EQ(splits, 0) << "of a group that has used no device";
    EXPECT_FALSE(run_op(ranks[rank], on_device(data)));
    const auto after = split("after");
    EXPECT_EQ(splits, 1);
    EXPECT_EQ(after == nullptr, rank == 1);
    if (!after) return;
    EXPECT_FALSE(run_op(*before, on_device(data)));
    EXPECT_EQ(device.made(), 2) << "its own runner and that of `before`";
    EXPECT_FALSE(run_op(*after, on_device(data)));
    EXPECT_EQ(of_part->made(), 1);
    EXPECT_EQ(after->rank(), rank == 2 ? 0 : 1);
    after->close();
    before->close();
  });
}

TEST(DeviceOps, ASplitThatFailsEndsTheGroup) {
  DeviceRanks ranks(ranks_of(2));
  std::barrier both(2);  // otherwise rank 0 ends the group while rank 1 uses it
  ranks.ranks().run([&](int rank) {
    FakeDevice& device = ranks.device(rank);
    device.captures = true;
    ErrorKind kind = ErrorKind::kInvalidArgument;
    device.split = [&](const std::vector<int>&) -> Result<MakeDeviceRunner> {
      return Error(kind, "the split went wrong");
    };
    std::vector<float> data(16, 1.0f);
    EXPECT_FALSE(run_op(ranks[rank], on_device(data)));
    const auto split = [&] {
      return ranks[rank].subgroup({0}, nullptr, "part", Milliseconds(20000)).error();
    };
    EXPECT_TRUE(says(split(), "the split went wrong"));
    EXPECT_FALSE(run_op(ranks[rank], on_device(data))) << "what all refuse alike";
    kind = ErrorKind::kNotSupported;
    both.arrive_and_wait();
    if (rank == 0) {
      EXPECT_TRUE(says(split(), "the split went wrong"));
    }
    EXPECT_TRUE(device.await_abort(Clock::now() + kHang));
    const Error later = host_op(ranks[rank]);
    EXPECT_TRUE(says(later, "it could not be split: the split went wrong")) << text_of(later);
  });
}

TEST(DeviceOps, OneThatIsNotStartedEndsTheGroup) {
  DeviceRanks ranks(ranks_of(3));
  std::vector<float> data(16, 1.0f);
  (void)in_flight(ranks, 3, data);  // creates the runners
  ranks.device(1).start_error = Error(ErrorKind::kSystem, "no memory on the device");
  ranks.ranks().run([&](int rank) {
    const Error error = run_op(ranks[rank], on_device(data));
    EXPECT_TRUE(says(error, "no memory on the device")) << text_of(error);
    EXPECT_EQ(error ? error.kind() : ErrorKind::kAborted, ErrorKind::kSystem);
    if (rank == 1) {
      EXPECT_TRUE(says(error, "all_reduce #2 (float32, 16 elements, SUM, on cuda) could not be"))
          << text_of(error);
    }
    EXPECT_TRUE(ranks.device(rank).await_abort(Clock::now() + kHang));
    const Error later = host_op(ranks[rank]);
    EXPECT_TRUE(says(later, "no memory on the device")) << text_of(later);
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.device(rank).aborts(), 1);
}

TEST(DeviceOps, WhatEndsOneThereIsToldToAll) {
  DeviceRanks ranks(ranks_of(3));
  std::vector<float> data(16, 1.0f);
  const auto ops = in_flight(ranks, 3, data);
  ranks.device(2).end(0, Error(ErrorKind::kSystem, "an uncorrectable error"));
  ranks.ranks().run([&](int rank) {
    const Error error = wait_op(ranks[rank], *ops[static_cast<size_t>(rank)]);
    EXPECT_TRUE(says(error, "all_reduce #1 (float32, 16 elements, SUM, on cuda)") &&
                says(error, "an uncorrectable error"))
        << text_of(error);
    EXPECT_TRUE(ranks.device(rank).await_abort(Clock::now() + kHang));
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.device(rank).aborts(), 1);
}

TEST(DeviceOps, AnAbortEndsThemOnAllRanks) {
  DeviceRanks ranks(ranks_of(2));
  std::vector<float> data(16, 1.0f);
  const auto ops = in_flight(ranks, 2, data);
  ranks[0].abort("for a test");
  ranks.ranks().run([&](int rank) {
    const Error error = wait_op(ranks[rank], *ops[static_cast<size_t>(rank)]);
    EXPECT_TRUE(says(error, "for a test")) << text_of(error);
    EXPECT_TRUE(ranks.device(rank).await_abort(Clock::now() + kHang));
    const Error next = run_op(ranks[rank], on_device(data));
    EXPECT_TRUE(says(next, "has failed and cannot be used")) << text_of(next);
  });
}

TEST(DeviceOps, ADeathEndsThem) {
  DeviceRanks ranks(ranks_of(3));
  ranks.ranks().run([&](int rank) { EXPECT_FALSE(host_op(ranks[rank])); });
  std::vector<float> data(16, 1.0f);
  const auto ops = in_flight(ranks, 2, data);
  ProgressEngine& progress = ranks.ranks().context(0).progress();
  progress.post([&progress, dead = ranks.ranks().context(2).id()] {
    progress.dispatcher().process_lost(dead, Error(ErrorKind::kPeerLost, "killed"));
  });
  ranks.ranks().run([&](int rank) {
    if (rank == 2) return;
    const Error error = wait_op(ranks[rank], *ops[static_cast<size_t>(rank)]);
    EXPECT_TRUE(says(error, "rank 2") && says(error, "is lost")) << text_of(error);
    EXPECT_TRUE(ranks.device(rank).await_abort(Clock::now() + kHang));
  });
}

TEST(DeviceOps, ATimeoutNamesTheOpAndWhoDidNotCome) {
  DeviceRanks ranks(ranks_of(2));
  ranks.ranks().run([&](int rank) { EXPECT_FALSE(host_op(ranks[rank])); });
  ranks.ranks().run([&](int rank) {
    if (rank == 1) return;
    std::vector<float> data(16, 1.0f);
    ranks[0].set_timeout(Milliseconds(1000));
    const Error error = run_op(ranks[0], on_device(data));
    EXPECT_TRUE(says(error, "all_reduce #2 (") && says(error, "Timed out waiting") &&
                says(error, "no sign that it was called by rank 1"))
        << text_of(error);
    EXPECT_EQ(error ? error.kind() : ErrorKind::kAborted, ErrorKind::kTimeout);
  });
  EXPECT_TRUE(ranks.device(0).await_abort(Clock::now() + kHang)) << "where there is a runner";
  EXPECT_FALSE(ranks.device(1).await_abort(Clock::now() + Milliseconds(200)));
}

TEST(DeviceOps, RanksThatCallItOnTheHostAreTold) {
  DeviceRanks ranks(ranks_of(2));
  ranks.ranks().run([&](int rank) {
    std::vector<float> data(16, 1.0f);
    const Error error = rank == 0 ? host_op(ranks[0]) : run_op(ranks[1], on_device(data));
    EXPECT_TRUE(says(error, "called all_reduce(float32, 16 elements, SUM)") &&
                says(error, "called all_reduce(float32, 16 elements, SUM, on cuda)"))
        << text_of(error);
    EXPECT_EQ(error ? error.kind() : ErrorKind::kAborted, ErrorKind::kMismatch);
  });
}

TEST(DeviceOps, RanksThatCallItWithOtherCountsAreTold) {
  DeviceRanks ranks(ranks_of(2));
  ranks.ranks().run([&](int rank) {
    std::vector<float> data(rank == 0 ? 16 : 32, 1.0f);
    const Error error = run_op(ranks[rank], on_device(data));
    EXPECT_TRUE(says(error, "16 elements") && says(error, "32 elements")) << text_of(error);
  });
}

TEST(DeviceOps, BarriersWaitForThem) {
  DeviceRanks ranks(ranks_of(2));
  ranks.ranks().run([&](int rank) {
    std::vector<float> data(16, 1.0f);
    const auto op = submitted(ranks[rank], on_device(data));
    EXPECT_FALSE(host_op(ranks[rank]));  // does not wait for the device
    OpRequest request;
    request.kind = Collective::kBarrier;
    request.dtype = DType::kBytes;
    const auto barrier = submitted(ranks[rank], std::move(request));
    EXPECT_FALSE(ranks[rank].wait(*barrier, Milliseconds(100)));
    ranks.device(rank).end(0);
    EXPECT_FALSE(wait_op(ranks[rank], *barrier));
    EXPECT_TRUE(op->finished());
  });
}

TEST(DeviceOps, SendsAndReceivesTakeNoNumber) {
  DeviceRanks ranks(ranks_of(2));
  ranks.ranks().run([&](int rank) {
    std::vector<float> data(16, 1.0f);
    const auto op = submitted(ranks[rank], message_on_device(data, 1 - rank, /*sends=*/rank == 0));
    EXPECT_FALSE(host_op(ranks[rank]));
    EXPECT_EQ(ranks.device(rank).op(0).number, 0u);
    EXPECT_EQ(ranks.device(rank).op(0).request.envelope->sends, rank == 0);
    EXPECT_FALSE(op->finished());
    ranks.device(rank).end(0);
    EXPECT_FALSE(wait_op(ranks[rank], *op));
    EXPECT_EQ(ranks[rank].sequence_number(), 1u);
  });
}

// The runner handles the codec map and the plan that depends on it.
TEST(DeviceOps, ACodedOneBringsItsPlan) {
  DeviceRanks ranks(ranks_of(2));
  ranks.ranks().run([&](int rank) {
    ranks.device(rank).captures = true;
    std::vector<float> data(1000, 1.0f);
    OpRequest request = on_device(data);
    request.codec_map = make_map("int8", 2, 1000, nullptr);
    const auto op = submitted(ranks[rank], std::move(request));
    EXPECT_FALSE(wait_op(ranks[rank], *op));
    EXPECT_NE(ranks.device(rank).op(0).plan.compression_hash, 0u);
    EXPECT_NE(ranks.device(rank).op(0).request.codec_map, nullptr);
    EXPECT_TRUE(op->fingerprint.on_device());
    EXPECT_NE(op->describe().find("codec int8, on cuda"), std::string::npos) << op->describe();
  });
}

}  // namespace
}  // namespace ringdist::test
