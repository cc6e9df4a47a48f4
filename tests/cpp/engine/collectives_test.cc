// Every collective with every algorithm that has it, over `local`. The results must equal exact
// arithmetic, whatever the order and delays of messages.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <numeric>

#include "algorithm/schedule.h"
#include "support/ranks.h"

namespace ringdist {
namespace {

// Returns options with small segments, so that small data needs many of them.
RanksOptions small_segments(int size, uint64_t seed) {
  RanksOptions out;
  out.size = size;
  out.network = {seed, std::chrono::microseconds(200)};
  out.config = {{"segment_bytes", "4096"}};
  return out;
}

int64_t sample(int rank, int64_t i) { return (i * 7 + rank * 13) % 101 - 50; }

template <typename T>
std::vector<T> input_of(int rank, int64_t count) {
  std::vector<T> out(count);
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(sample(rank, i));
  return out;
}

void expect_sum(Ranks& ranks, int64_t count) {
  ranks.run([&](int rank) {
    auto data = input_of<float>(rank, count);
    const Error error =
        run_op(ranks[rank], allreduce_request(data, DType::kFloat32, ReduceOp::kSum));
    ASSERT_FALSE(error) << error.what();
    for (int64_t i = 0; i < count; ++i) {
      float expected = 0;
      for (int r = 0; r < ranks.size(); ++r) expected += static_cast<float>(sample(r, i));
      ASSERT_EQ(data[i], expected) << "element " << i << " of " << count << " on rank " << rank;
    }
  });
}

class Sizes : public testing::TestWithParam<int> {};

TEST_P(Sizes, AllreduceOfOddCounts) {
  for (const char* algorithm : {"ring", "direct"}) {
    RanksOptions options = small_segments(GetParam(), 11);
    options.config["algorithm"] = algorithm;
    Ranks ranks(options);
    for (int64_t count : {0, 1, 2, 7, 1009, 20011}) expect_sum(ranks, count);
  }
}

TEST_P(Sizes, BroadcastFromEveryRoot) {
  for (const char* algorithm : {"tree", "direct"}) {
    RanksOptions options = small_segments(GetParam(), 12);
    options.config["algorithm"] = algorithm;
    Ranks ranks(options);
    for (int root = 0; root < ranks.size(); ++root)
      ranks.run([&](int rank) {
        auto data = input_of<int32_t>(rank, 5003);
        OpRequest request = allreduce_request(data, DType::kInt32, ReduceOp::kNone);
        request.kind = Collective::kBroadcast;
        request.root = root;
        const Error error = run_op(ranks[rank], std::move(request));
        ASSERT_FALSE(error) << error.what();
        ASSERT_EQ(data, input_of<int32_t>(root, 5003));
      });
  }
}

TEST_P(Sizes, AllgatherIntoSeparateBuffers) {
  for (const char* algorithm : {"ring", "direct"}) {
    RanksOptions options = small_segments(GetParam(), 13);
    options.config["algorithm"] = algorithm;
    Ranks ranks(options);
    for (int64_t count : {0, 1, 4001})
      ranks.run([&](int rank) {
        auto input = input_of<int64_t>(rank, count);
        std::vector<std::vector<int64_t>> outputs(ranks.size(), std::vector<int64_t>(count));
        OpRequest request;
        request.kind = Collective::kAllgather;
        request.dtype = DType::kInt64;
        request.count = count;
        request.input = Buffer(8);
        request.input.append(input.data(), count);
        request.output = Buffer(8);
        for (auto& output : outputs) request.output.append(output.data(), count);
        const Error error = run_op(ranks[rank], std::move(request));
        ASSERT_FALSE(error) << error.what();
        for (int r = 0; r < ranks.size(); ++r) ASSERT_EQ(outputs[r], input_of<int64_t>(r, count));
      });
  }
}

TEST_P(Sizes, ReduceScatterLeavesItsInput) {
  for (const char* algorithm : {"ring", "direct"}) {
    RanksOptions options = small_segments(GetParam(), 14);
    options.config["algorithm"] = algorithm;
    Ranks ranks(options);
    for (int64_t count : {0, 1, 3001})
      ranks.run([&](int rank) {
        auto input = input_of<double>(rank, count * ranks.size());
        std::vector<double> output(count);
        OpRequest request;
        request.kind = Collective::kReduceScatter;
        request.dtype = DType::kFloat64;
        request.reduce_op = ReduceOp::kMax;
        request.count = count;
        request.input = Buffer(8);
        request.input.append(input.data(), static_cast<int64_t>(input.size()));
        request.output = Buffer(8);
        request.output.append(output.data(), count);
        const Error error = run_op(ranks[rank], std::move(request));
        ASSERT_FALSE(error) << error.what();
        ASSERT_EQ(input, input_of<double>(rank, count * ranks.size()));
        for (int64_t i = 0; i < count; ++i) {
          int64_t expected = -100;
          for (int r = 0; r < ranks.size(); ++r)
            expected = std::max(expected, sample(r, rank * count + i));
          ASSERT_EQ(output[i], static_cast<double>(expected));
        }
      });
  }
}

// When a barrier ends, all ranks have delivered the results that their callers copy elsewhere.
TEST(Barrier, WaitsUntilResultsAreHandedOver) {
  Ranks ranks({});
  std::latch called(3);
  std::atomic<bool> output_delivered{false};
  std::thread caller([&] {
    called.arrive_and_wait();
    std::this_thread::sleep_for(Milliseconds(100));
    output_delivered = true;
    ranks[0].output_delivered(1);
  });
  ranks.run([&](int rank) {
    std::vector<float> data(64, 1.0f);
    OpRequest request = allreduce_request(data, DType::kFloat32, ReduceOp::kSum);
    request.output_staged = rank == 0;
    EXPECT_FALSE(run_op(ranks[rank], std::move(request)));
    OpRequest barrier;
    barrier.kind = Collective::kBarrier;
    barrier.dtype = DType::kBytes;
    const auto op = ranks[rank].submit(std::move(barrier), true);
    called.count_down();
    EXPECT_FALSE(wait_op(ranks[rank], *op.value()));
    EXPECT_TRUE(output_delivered) << "rank " << rank;
  });
  caller.join();
}

TEST_P(Sizes, BarrierHoldsBackEverybody) {
  Ranks ranks(small_segments(GetParam(), 15));
  std::atomic<int> arrived{0};
  for (int round = 1; round <= 5; ++round)
    ranks.run([&](int rank) {
      ++arrived;
      OpRequest request;
      request.kind = Collective::kBarrier;
      request.dtype = DType::kBytes;
      const Error error = run_op(ranks[rank], std::move(request));
      ASSERT_FALSE(error) << error.what();
      ASSERT_GE(arrived, round * ranks.size());
    });
}

INSTANTIATE_TEST_SUITE_P(Collectives, Sizes, testing::Values(1, 2, 3, 4, 5, 8));

TEST(OneContext, RanksOfOneContextTalkWithoutATransport) {
  RanksOptions options = small_segments(3, 17);
  options.one_context = true;
  Ranks ranks(options);
  expect_sum(ranks, 30011);
}

TEST(Memory, TheSmallestLimitStillEnds) {
  RanksOptions options = small_segments(4, 18);
  options.config["memory"] = "1MiB";
  Ranks ranks(options);
  ranks.run([&](int rank) {
    std::vector<std::vector<float>> data;
    for (int i = 0; i < 24; ++i) data.push_back(input_of<float>(rank, 100003));
    std::vector<std::shared_ptr<Op>> ops;
    for (auto& one : data)
      ops.push_back(ranks[rank]
                        .submit(allreduce_request(one, DType::kFloat32, ReduceOp::kSum), false)
                        .value());
    for (auto& op : ops) {
      const Error error = wait_op(ranks[rank], *op);
      ASSERT_FALSE(error) << error.what();
    }
  });
}

}  // namespace
}  // namespace ringdist
