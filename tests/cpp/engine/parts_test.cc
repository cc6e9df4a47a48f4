// Collectives with parts: rooted ones, all-to-all, and those with parts of different sizes. They
// run over `local` with every algorithm that has them.
#include <gtest/gtest.h>

#include <random>

#include "algorithm/schedule.h"
#include "support/ranks.h"

namespace ringdist {
namespace {

using Data = std::vector<int32_t>;
using Counts = std::vector<int64_t>;

RanksOptions options(int size, std::string_view algorithm, uint64_t seed = 21) {
  RanksOptions out;
  out.size = size;
  out.network = {seed, std::chrono::microseconds(200)};
  out.config = {{"segment_bytes", "4096"}, {"algorithm", std::string(algorithm)}};
  return out;
}

// Appends the elements that `from` has for `to`.
void add(Data& data, int64_t count, int from, int to) {
  for (int64_t i = 0; i < count; ++i)
    data.push_back(static_cast<int32_t>(i * 31 + from * 1000 + to));
}

Buffer over(Data& data) {
  Buffer out(sizeof(int32_t));
  out.append(data.data(), static_cast<int64_t>(data.size()));
  return out;
}

OpRequest request(Collective kind, int64_t count, Data& input, Data& output) {
  OpRequest out;
  out.kind = kind;
  out.dtype = DType::kInt32;
  out.reduce_op = ReduceOp::kNone;
  out.count = count;
  out.input = over(input);
  out.output = over(output);
  return out;
}

using SizeAndAlgorithm = std::tuple<int, std::string_view>;

std::string name_of(const testing::TestParamInfo<SizeAndAlgorithm>& info) {
  return std::string(std::get<1>(info.param)) + "_" + std::to_string(std::get<0>(info.param));
}

std::vector<std::string_view> having(Collective kind) {
  std::vector<std::string_view> out;
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.supports(kind)) out.push_back(algorithm.name);
  return out;
}

class Reduce : public testing::TestWithParam<SizeAndAlgorithm> {};

TEST_P(Reduce, OnlyTheRootIsWritten) {
  const auto [size, algorithm] = GetParam();
  Ranks ranks(options(size, algorithm));
  for (int root = 0; root < size; ++root)
    for (const int64_t count : {0, 1, 5, 5003})
      ranks.run([&, size = size](int rank) {
        Data data;
        add(data, count, rank, 0);
        const Data before = data;
        Data none;
        OpRequest op = request(Collective::kReduce, count, none, data);
        op.reduce_op = ReduceOp::kSum;
        op.root = root;
        const Error error = run_op(ranks[rank], std::move(op));
        ASSERT_FALSE(error) << error.what();
        for (int64_t i = 0; i < count; ++i) {
          const int64_t sum = size * i * 31 + 1000 * size * (size - 1) / 2;
          ASSERT_EQ(data[i], rank == root ? sum : before[i]) << i;
        }
      });
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Reduce,
                         testing::Combine(testing::Values(1, 2, 3, 5),
                                          testing::ValuesIn(having(Collective::kReduce))),
                         name_of);

class Parts : public testing::TestWithParam<int> {};

TEST_P(Parts, GatherAndScatter) {
  const int size = GetParam();
  Ranks ranks(options(size, "direct"));
  for (int root = 0; root < size; ++root)
    for (const int64_t count : {0, 1, 3001})
      ranks.run([&](int rank) {
        Data all;
        for (int r = 0; r < size; ++r) add(all, count, r, root);
        Data mine;
        add(mine, count, rank, root);
        Data gathered(rank == root ? all.size() : 0);
        OpRequest gather = request(Collective::kGather, count, mine, gathered);
        gather.root = root;
        Error error = run_op(ranks[rank], std::move(gather));
        ASSERT_FALSE(error) << error.what();
        ASSERT_EQ(gathered, rank == root ? all : Data());

        Data part(static_cast<size_t>(count));
        OpRequest scatter = request(Collective::kScatter, count, gathered, part);
        scatter.root = root;
        error = run_op(ranks[rank], std::move(scatter));
        ASSERT_FALSE(error) << error.what();
        ASSERT_EQ(part, mine);
      });
}

// The sizes of an all-to-all differ and may be zero. Only the two ranks of a pair have them.
TEST_P(Parts, AllToAllOfAnySizes) {
  const auto seed = static_cast<uint64_t>(std::random_device{}());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const int size = GetParam();
  Ranks ranks(options(size, "direct", seed));
  for (int round = 0; round < 4; ++round) {
    std::vector<Counts> counts(size);
    for (Counts& row : counts)
      for (int to = 0; to < size; ++to)
        row.push_back(random() % 3 == 0 ? 0 : static_cast<int64_t>(random() % 4000));
    ranks.run([&](int rank) {
      Data in;
      Data expected;
      Counts incoming;
      for (int r = 0; r < size; ++r) {
        add(in, counts[rank][r], rank, r);
        add(expected, counts[r][rank], r, rank);
        incoming.push_back(counts[r][rank]);
      }
      Data out(expected.size());
      OpRequest op = request(Collective::kAlltoall, 0, in, out);
      op.input_parts = counts[rank];
      op.output_parts = incoming;
      const Error error = run_op(ranks[rank], std::move(op));
      ASSERT_FALSE(error) << error.what();
      ASSERT_EQ(out, expected);
    });
  }
}

TEST_P(Parts, AllgatherAndReduceScatterOfAnySizes) {
  const auto seed = static_cast<uint64_t>(std::random_device{}());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const int size = GetParam();
  for (const char* algorithm : {"ring", "direct"}) {
    Ranks ranks(options(size, algorithm, seed));
    for (int round = 0; round < 3; ++round) {
      Counts counts;
      for (int r = 0; r < size; ++r)
        counts.push_back(random() % 3 == 0 ? 0 : static_cast<int64_t>(random() % 4000));
      ranks.run([&](int rank) {
        Data all;
        for (int r = 0; r < size; ++r) add(all, counts[r], r, 0);
        Data mine;
        add(mine, counts[rank], rank, 0);
        Data out(all.size());
        OpRequest gather = request(Collective::kAllgather, counts[rank], mine, out);
        gather.output_parts = counts;
        Error error = run_op(ranks[rank], std::move(gather));
        ASSERT_FALSE(error) << error.what();
        ASSERT_EQ(out, all);

        Data part(mine.size());
        OpRequest scatter = request(Collective::kReduceScatter, counts[rank], all, part);
        scatter.input_parts = counts;
        scatter.reduce_op = ReduceOp::kSum;
        error = run_op(ranks[rank], std::move(scatter));
        ASSERT_FALSE(error) << error.what();
        for (size_t i = 0; i < mine.size(); ++i) ASSERT_EQ(part[i], size * mine[i]);
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Parts, testing::Values(1, 2, 3, 5));

// The two ranks of an edge disagree, and all ranks get an error with both sizes.
TEST(PartsThatDiffer, EndTheGroupWithBothSizes) {
  Ranks ranks(options(3, "direct"));
  ranks.run([&](int rank) {
    Data in(30);
    Data out(rank == 2 ? 31 : 30);
    OpRequest op = request(Collective::kAlltoall, 0, in, out);
    op.input_parts = {10, 10, 10};
    op.output_parts = {10, rank == 2 ? 11 : 10, 10};
    Error error = run_op(ranks[rank], std::move(op));
    if (!error) {  // its part was complete before the others noticed
      Data next(1);
      error = run_op(ranks[rank], allreduce_request(next, DType::kInt32, ReduceOp::kSum));
    }
    ASSERT_TRUE(error);
    EXPECT_EQ(error.kind(), ErrorKind::kMismatch);
    EXPECT_NE(error.message().find("rank 1 sends 10 elements to rank 2, which expects 11"),
              std::string::npos)
        << error.message();
  });
}

}  // namespace
}  // namespace ringdist
