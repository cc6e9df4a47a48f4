// Ops over transports between processes, and over several transports at once.
#include <gtest/gtest.h>

#include <thread>

#include "codec/codec.h"
#include "codec/codec_map.h"
#include "support/ranks.h"

namespace ringdist {
namespace {

constexpr int64_t kLongCount = 300'007;

RanksOptions all_over(const std::string& transport) {
  RanksOptions out;
  out.size = 4;
  for (int rank = 0; rank < out.size; ++rank) out.transports[rank] = {transport};
  return out;
}

// Ranks 0 and 1 share memory. All other pairs reach each other by `local` only.
RanksOptions two_by_memory() {
  RanksOptions out;
  out.size = 4;
  out.transports = {{0, {"shm", "local"}}, {1, {"shm", "local"}}};
  out.config = {{"algorithm", "direct"}};
  return out;
}

// Checks sums with exact results, with or without a codec (fp16 holds these integers).
void expect_sums(const RanksOptions& options, const std::string& codec) {
  Ranks ranks(options);
  std::vector<std::vector<float>> data(options.size, std::vector<float>(kLongCount));
  ranks.run([&](int rank) {
    for (int round = 0; round < 3; ++round) {
      for (int64_t i = 0; i < kLongCount; ++i) data[rank][i] = static_cast<float>((i + rank) % 7);
      OpRequest request = allreduce_request(data[rank], DType::kFloat32, ReduceOp::kSum);
      if (!codec.empty()) {
        auto map = std::make_shared<CodecMap>();
        map->parts.push_back(
            {0, kLongCount, parse_codec_pair(codec, options.size).value(), nullptr});
        request.codec_map = map;
      }
      const Error error = run_op(ranks[rank], std::move(request));
      ASSERT_FALSE(error) << error.what();
    }
  });
  for (int rank = 0; rank < options.size; ++rank)
    for (int64_t i = 0; i < kLongCount; ++i) {
      float sum = 0;
      for (int64_t from = 0; from < options.size; ++from) sum += static_cast<float>((i + from) % 7);
      ASSERT_EQ(data[rank][i], sum) << "rank " << rank << ", element " << i;
    }
}

TEST(Transports, RingOverSharedMemory) { expect_sums(all_over("shm"), ""); }
TEST(Transports, RingOverUcx) { expect_sums(all_over("ucx"), ""); }
TEST(Transports, RingOverTcp) { expect_sums(all_over("tcp"), ""); }
TEST(Transports, CompressedOverSharedMemory) { expect_sums(all_over("shm"), "fp16"); }
TEST(Transports, SeveralInOneGroup) { expect_sums(two_by_memory(), ""); }
// One encoded message then goes to peers behind two transports.
TEST(Transports, SeveralInOneCompressedOp) { expect_sums(two_by_memory(), "fp16"); }

// Sends messages without a receive, far more than a ring or the chunks hold.
TEST(Transports, ALateRankOverSharedMemory) {
  RanksOptions options = all_over("shm");
  Ranks ranks(options);
  constexpr int kOps = 100;
  std::vector<std::vector<std::vector<float>>> data(options.size);
  ranks.run([&](int rank) {
    data[rank].assign(kOps, std::vector<float>(50'000, static_cast<float>(rank)));
    if (rank == 3) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::vector<std::shared_ptr<Op>> ops;
    for (auto& one : data[rank]) {
      auto op = ranks[rank].submit(allreduce_request(one, DType::kFloat32, ReduceOp::kSum), false);
      ASSERT_TRUE(op.ok());
      ops.push_back(op.value());
    }
    for (const auto& op : ops) {
      const Error error = wait_op(ranks[rank], *op);
      ASSERT_FALSE(error) << error.what();
    }
  });
  for (const auto& of_rank : data)
    for (const auto& one : of_rank) ASSERT_EQ(one[49'999], 6.0f);
}

// Reports to rank 2 that its link to rank 3 broke.
void break_link(Ranks& ranks, const char* transport) {
  ProgressEngine& progress = ranks.context(2).progress();
  ASSERT_TRUE(progress.call(
      [&] {
        progress.dispatcher().on_connection_lost(
            transport, ranks.context(3).id(), Error(ErrorKind::kPeerLost, "broken for the test"));
      },
      Clock::now() + std::chrono::seconds(5)));
}

Error sum(Ranks& ranks, int rank) {
  std::vector<float> data(10, 1.0f);
  return run_op(ranks[rank], allreduce_request(data, DType::kFloat32, ReduceOp::kSum));
}

void expect_sum(Ranks& ranks) {
  ranks.run([&](int rank) {
    const Error error = sum(ranks, rank);
    ASSERT_FALSE(error) << error.what();
  });
}

// Ranks 2 and 3 reach each other by `local`, so a broken shm link between them does not affect
// this group.
TEST(Transports, ABrokenLinkConcernsItsOwnTransportOnly) {
  Ranks ranks(two_by_memory());
  expect_sum(ranks);
  break_link(ranks, "shm");
  std::this_thread::sleep_for(std::chrono::milliseconds(700));  // longer than the grace period
  expect_sum(ranks);
}

// Lanes sleep while there is no op. The grace period of a broken link must end nevertheless.
TEST(Transports, ABrokenLinkEndsAnIdleGroup) {
  Ranks ranks(two_by_memory());
  expect_sum(ranks);
  break_link(ranks, "local");
  const TimePoint deadline = Clock::now() + std::chrono::seconds(10);
  for (int rank = 0; rank < ranks.size(); ++rank) {
    while (!ranks[rank].failure() && Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_TRUE(ranks[rank].failure()) << "rank " << rank;
    EXPECT_NE(ranks[rank].failure().message().find("broken for the test"), std::string::npos)
        << "rank " << rank << ": " << ranks[rank].failure().what();
  }
  ranks.run([&](int rank) { EXPECT_TRUE(sum(ranks, rank)); });
}

TEST(Transports, OneThatDoesNotReachIsNamed) {
  RanksOptions options = two_by_memory();
  options.config = {{"transport", "shm"}};
  Ranks ranks(options);
  ranks.run([&](int rank) {
    std::vector<float> data(10, 1.0f);
    const Error error =
        run_op(ranks[rank], allreduce_request(data, DType::kFloat32, ReduceOp::kSum));
    ASSERT_TRUE(error);
    EXPECT_NE(error.message().find("transport 'shm' does not reach it"), std::string::npos)
        << error.what();
  });
}

}  // namespace
}  // namespace ringdist
