// Compressed ops as a whole, for every codec of the registry. Error feedback must lose nothing,
// and the bits must be equal on all ranks and in every run.
#include "support/compressed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "plan/compressed_plan.h"
#include "support/ranks.h"

namespace ringdist {
namespace {

constexpr size_t kCount = 20011;
constexpr uint64_t kSeed = 20261121;

RanksOptions options(const CompressedCase& c) {
  RanksOptions out;
  out.size = c.size;
  out.config = {{"algorithm", c.algorithm}, {"segment_bytes", "16384"}};
  out.network = {5, std::chrono::microseconds(50)};
  return out;
}

class Compressed : public testing::TestWithParam<CompressedCase> {};

TEST_P(Compressed, ResultsAndResidualsSumToTheInputs) {
  const CompressedCase& c = GetParam();
  const CodecPair pair = parse_codec_pair(c.codec, c.size).value();
  if (!pair.contribution->contraction() || !pair.result->contraction())
    GTEST_SKIP() << c.codec << " is no contraction: it may not have error feedback";
  constexpr int kSteps = 20;
  Ranks ranks(options(c));
  std::vector<std::vector<double>> inputs(c.size, std::vector<double>(kCount));
  std::vector<std::vector<double>> results(c.size, std::vector<double>(kCount));
  std::vector<std::vector<float>> residuals(c.size, std::vector<float>(kCount));
  ranks.run([&](int rank) {
    Tensor tensor(c.dtype, kCount);
    for (int step = 0; step < kSteps; ++step) {
      tensor.set(gradient(kSeed, rank, step, kCount));
      if (step == 7) tensor.set(std::vector<float>(kCount));  // a zero gradient keeps the residual
      const std::vector<float> in = tensor.values();
      // The op reads one residual buffer and writes every element of the other.
      const std::vector<float> old_residual = residuals[rank];
      std::vector<float> next(kCount, std::numeric_limits<float>::quiet_NaN());
      OpRequest request = tensor.request(c.op);
      request.codec_map = make_map(c.codec, c.size, kCount, &residuals[rank], &next);
      const Error error = run_op(ranks[rank], std::move(request));
      ASSERT_FALSE(error) << error.what();
      ASSERT_EQ(residuals[rank], old_residual);
      for (float x : next) ASSERT_TRUE(std::isfinite(x));
      residuals[rank].swap(next);
      const std::vector<float> out = tensor.values();
      const double weight = c.op == ReduceOp::kAvg ? c.size : 1;
      for (size_t i = 0; i < kCount; ++i) {
        inputs[rank][i] += in[i];
        results[rank][i] += weight * out[i];
      }
    }
  });
  double off = 0;
  double all = 0;
  for (size_t i = 0; i < kCount; ++i) {
    double in = 0;
    double out = results[0][i];
    for (int rank = 0; rank < c.size; ++rank) {
      in += inputs[rank][i];
      out += residuals[rank][i];
      ASSERT_EQ(results[rank][i], results[0][i]);
    }
    off += (in - out) * (in - out);
    all += in * in;
  }
  EXPECT_LT(std::sqrt(off / all), 1e-6) << "seed " << kSeed;
}

TEST_P(Compressed, RepeatsBitByBit) {
  const CompressedCase& c = GetParam();
  std::vector<std::vector<std::byte>> first;
  for (int run = 0; run < 2; ++run) {
    Ranks ranks(options(c));
    std::vector<std::vector<std::byte>> out(c.size);
    ranks.run([&](int rank) {
      Tensor tensor(c.dtype, kCount);
      for (int step = 0; step < 3; ++step) {
        tensor.set(gradient(kSeed, rank, step, kCount));
        OpRequest request = tensor.request(c.op);
        request.codec_map = make_map(c.codec, c.size, kCount, nullptr);
        const Error error = run_op(ranks[rank], std::move(request));
        ASSERT_FALSE(error) << error.what();
        out[rank].insert(out[rank].end(), tensor.bytes().begin(), tensor.bytes().end());
      }
    });
    for (int rank = 1; rank < c.size; ++rank) ASSERT_TRUE(out[rank] == out[0]) << rank;
    if (run == 0) first = out;
    ASSERT_TRUE(out[0] == first[0]) << "another run, other bits; seed " << kSeed;
  }
}

TEST_P(Compressed, PoisonReachesEveryRankAndNoResidual) {
  const CompressedCase& c = GetParam();
  const CodecPair pair = parse_codec_pair(c.codec, c.size).value();
  const bool feedback = pair.contribution->contraction() && pair.result->contraction();
  Ranks ranks(options(c));
  std::vector<std::vector<std::byte>> out(c.size);
  ranks.run([&](int rank) {
    std::vector<float> residual(kCount, 0.25f);
    Tensor tensor(c.dtype, kCount);
    std::vector<float> in = gradient(kSeed, rank, 0, kCount);
    constexpr size_t kBad = 12345;
    if (rank == c.size - 1) in[kBad] = std::numeric_limits<float>::quiet_NaN();
    tensor.set(in);
    OpRequest request = tensor.request(c.op);
    request.codec_map = make_map(c.codec, c.size, kCount, feedback ? &residual : nullptr);
    const Error error = run_op(ranks[rank], std::move(request));
    ASSERT_FALSE(error) << error.what();
    EXPECT_TRUE(std::isnan(tensor.values()[kBad]));
    for (float x : residual) ASSERT_TRUE(std::isfinite(x));
    out[rank] = tensor.bytes();
  });
  for (int rank = 1; rank < c.size; ++rank) ASSERT_TRUE(out[rank] == out[0]) << rank;
}

std::vector<CompressedCase> cases() {
  std::vector<CompressedCase> out;
  for (const CodecRow& row : codecs())
    for (std::string_view example : row.examples) out.push_back({std::string(example)});
  for (const char* codec : {"int4", "onebit", "topk:0.01", "int2>int8"}) {
    out.push_back({codec, "ring", 4});
    out.push_back({codec, "direct", 4, DType::kBFloat16, ReduceOp::kAvg});
    out.push_back({codec, "ring", 2, DType::kFloat32, ReduceOp::kAvg});
    out.push_back({codec, "direct", 2, DType::kFloat16, ReduceOp::kSum});
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Codecs, Compressed, testing::ValuesIn(cases()), coded_case_name);

TEST(CompressedParts, OfZerosSendZerosAndKeepTheirResiduals) {
  Ranks ranks(options({"int4"}));
  ranks.run([&](int rank) {
    std::vector<float> residual(kCount, 0.5f);
    std::vector<float> in(kCount, rank == 0 ? 1.0f : 0.0f);
    OpRequest request = allreduce_request(in, DType::kFloat32, ReduceOp::kSum);
    auto map = std::make_shared<CodecMap>();
    map->parts.push_back({0, kCount, parse_codec_pair("int4", 3).value(), residual.data()});
    request.codec_map = map;
    const Error error = run_op(ranks[rank], std::move(request));
    ASSERT_FALSE(error) << error.what();
    for (float x : in) ASSERT_NEAR(x, 1.5f, 0.01f);  // gradient and residual of rank 0
    for (float x : residual) ASSERT_NEAR(x, rank == 0 ? 0.0f : 0.5f, 0.01f);
  });
}

Error submit_error(OpRequest request, CodecMap map) {
  request.codec_map = std::make_shared<CodecMap>(std::move(map));
  return check_codec_map(request, 3);
}

TEST(CompressedRequests, AreCheckedBeforeAnythingIsSent) {
  std::vector<float> data(4096);
  std::vector<float> residual(4096);
  const auto map = [&](const char* codec, float* keep = nullptr) {
    CodecMap out;
    out.parts.push_back({0, 4096, parse_codec_pair(codec, 3).value(), keep});
    return out;
  };
  const auto message = [&](OpRequest request, CodecMap blocks) {
    const Error error = submit_error(std::move(request), std::move(blocks));
    return error ? error.message() : std::string();
  };
  const auto sum = allreduce_request(data, DType::kFloat32, ReduceOp::kSum);
  EXPECT_EQ(message(sum, map("int4", residual.data())), "");
  auto largest = sum;
  largest.reduce_op = ReduceOp::kMax;
  EXPECT_NE(message(largest, map("int4")).find("SUM or AVG, got MAX"), std::string::npos);
  auto integers = sum;
  integers.dtype = DType::kInt32;
  EXPECT_NE(message(integers, map("int4")).find("got int32"), std::string::npos);
  auto broadcast = sum;
  broadcast.kind = Collective::kBroadcast;
  EXPECT_NE(message(broadcast, map("int4")).find("broadcast is not compressed"), std::string::npos);
  EXPECT_NE(message(sum, map("randomk:10", residual.data())).find("error feedback"),
            std::string::npos);
}

TEST(CodedShards, AreCutAtBlocksNearEqualBytes) {
  CodecMap map;
  const CodecPair none = parse_codec_pair("none", 2).value();
  const CodecPair int4 = parse_codec_pair("int4", 2).value();
  map.parts.push_back({0, 1024, none, nullptr});
  map.parts.push_back({1024, 7936, int4, nullptr});
  const std::vector<int64_t> bounds = compressed_shards(map, 2);
  ASSERT_EQ(bounds.size(), 3u);
  // 1024 elements of 32 bits take as much as 7936 of 4.13 bits.
  EXPECT_EQ((bounds[1] - 1024) % 128, 0);
  EXPECT_NEAR(static_cast<double>(bounds[1]), 1024, 128);
  EXPECT_EQ(bounds[2], 8960);
  for (int size : {1, 2, 5, 64}) {
    const auto many = compressed_shards(map, size);
    ASSERT_EQ(many.size(), static_cast<size_t>(size) + 1);
    for (int r = 0; r < size; ++r) ASSERT_LE(many[r], many[r + 1]);
  }
}

}  // namespace
}  // namespace ringdist
