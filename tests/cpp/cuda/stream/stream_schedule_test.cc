// Every schedule of the registry on fake streams, compared with exact arithmetic. Everything is
// enqueued before anything runs, nothing waits for the host, and all memory is freed.
#include "cuda/stream/stream_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "algorithm/schedule.h"
#include "support/fake_cuda.h"
#include "support/fake_link.h"
#include "support/fake_streams.h"
#include "support/registry_rows.h"
#include "support/symbolic.h"

namespace ringdist::gpu {
namespace {

using symbolic::Case;
using Values = std::vector<int32_t>;

int32_t value(int rank, int64_t element) {
  return static_cast<int32_t>(100'000 * (rank + 1) + element);
}

// A rank's tensors, each in two spans if `in_pieces`.
struct RankOp {
  RankOp(const Case& what, int rank, bool in_pieces) {
    const symbolic::Counts counts = symbolic::counts_of(what, rank);
    input.resize(static_cast<size_t>(counts.input));
    output.resize(static_cast<size_t>(counts.output));
    for (size_t i = 0; i < input.size(); ++i) input[i] = value(rank, static_cast<int64_t>(i));
    const bool updates = what.kind == Collective::kAllreduce || what.kind == Collective::kReduce ||
                         what.kind == Collective::kBroadcast;
    for (size_t i = 0; updates && i < output.size(); ++i)
      output[i] = value(rank, static_cast<int64_t>(i));
    before = output;
    op.request.kind = what.kind;
    op.request.dtype = what.kind == Collective::kBarrier ? DType::kBytes : DType::kInt32;
    op.request.reduce_op = reduces(what.kind) ? ReduceOp::kSum : ReduceOp::kNone;
    op.request.root = what.root;
    op.request.count = what.count;
    op.input = buffer(input, in_pieces);
    op.output = buffer(output, in_pieces);
  }

  static Buffer buffer(Values& values, bool in_pieces) {
    Buffer out(sizeof(int32_t));
    const size_t first = in_pieces ? values.size() / 3 : 0;
    out.append(values.data(), static_cast<int64_t>(first));
    out.append(values.data() + first, static_cast<int64_t>(values.size() - first));
    return out;
  }

  Values input, output, before;
  DeviceOp op;
};

class World {
 public:
  explicit World(const Case& what, bool in_pieces) : what_(what) {
    for (int rank = 0; rank < what.size; ++rank)
      ranks_.push_back(std::make_unique<RankOp>(what, rank, in_pieces));
  }

  void run(const Algorithm& algorithm) {
    {
      FakeStreams streams;
      FakeCuda cuda(streams);
      FakeNetworkModel wire;
      std::vector<std::unique_ptr<FakeLink>> links;
      for (int rank = 0; rank < what_.size; ++rank) {
        links.push_back(std::make_unique<FakeLink>(wire, streams, rank));
        enqueue_one(algorithm, rank, cuda, *links.back(), streams.make());
      }
      for (const auto& rank : ranks_) EXPECT_EQ(rank->output, rank->before) << "the host waited";
      EXPECT_FALSE(streams.progress()) << "streams that wait for ever";
      EXPECT_TRUE(wire.empty());
      EXPECT_EQ(cuda.alive(), 0u);
    }
    for (int rank = 0; rank < what_.size; ++rank) check_results(rank);
  }

 private:
  void enqueue_one(const Algorithm& algorithm, int rank, FakeCuda& cuda, DeviceLink& link,
                   Stream stream) {
    const StreamSchedule schedule =
        make_stream_schedule(algorithm, what_.kind, symbolic::shape_of(what_, rank));
    StreamOp op(ranks_[index(rank)]->op, *schedule.steps, rank, what_.size, cuda, stream);
    const auto arithmetic = plain_stream_arithmetic(op);
    const Error error = enqueue(schedule, op, *arithmetic, link);
    ASSERT_FALSE(error) << error.what();
  }

  void check_results(int rank) const {
    const RankOp& mine = *ranks_[index(rank)];
    for (size_t e = 0; e < mine.output.size(); ++e)
      ASSERT_EQ(mine.output[e], expected(rank, static_cast<int64_t>(e)))
          << "rank " << rank << ", element " << e;
    for (size_t e = 0; e < mine.input.size(); ++e)
      ASSERT_EQ(mine.input[e], value(rank, static_cast<int64_t>(e)));
  }

  int32_t expected(int rank, int64_t element) const {
    const bool not_root = what_.kind == Collective::kReduce && rank != what_.root;
    if (!reduces(what_.kind) || not_root) {
      const auto [from, at] = symbolic::origin_of(what_, rank, element);
      return value(from, at);
    }
    int32_t sum = 0;
    for (int from = 0; from < what_.size; ++from) {
      const int64_t at = what_.kind == Collective::kReduceScatter
                             ? symbolic::shape_of(what_, rank).count * rank + element
                             : element;
      sum += value(from, at);
    }
    return sum;
  }

  static size_t index(int rank) { return static_cast<size_t>(rank); }

  const Case what_;
  std::vector<std::unique_ptr<RankOp>> ranks_;
};

// Returns hosts with three and two ranks alternately. Small groups have one host.
std::vector<std::vector<int>> hosts(int size) {
  std::vector<std::vector<int>> out;
  for (int rank = 0; size > 3 && rank < size; ++rank) {
    if (rank % 5 == 0 || rank % 5 == 3) out.emplace_back();
    out.back().push_back(rank);
  }
  return out;
}

class StreamSchedules : public testing::TestWithParam<test::RegistryRow> {};

TEST_P(StreamSchedules, GiveExactResults) {
  const auto [algorithm, kind] = GetParam();
  for (const int size : {1, 2, 3, 4, 5, 8, 13})
    for (const int64_t count : {0, 1, 7, 40})
      for (const int root : {0, size - 1})
        for (const bool in_pieces : {false, true}) {
          if (kind == Collective::kBarrier && count > 0) continue;
          SCOPED_TRACE("size " + std::to_string(size) + ", count " + std::to_string(count) +
                       ", root " + std::to_string(root) + (in_pieces ? ", in pieces" : ""));
          World(Case{kind, size, count, root, false, {}, hosts(size)}, in_pieces).run(*algorithm);
          if (HasFatalFailure()) return;
        }
}

INSTANTIATE_TEST_SUITE_P(All, StreamSchedules, testing::ValuesIn(test::registry_rows()),
                         test::registry_row_name);

}  // namespace
}  // namespace ringdist::gpu
