// Bits of reductions: equal in every run, whatever the timing. With deterministic="layout" they
// are also equal wherever a tensor lies in a bucket. NaN, inf and zeros of both signs are
// included.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <random>

#include "algorithm/schedule.h"
#include "kernel/cast.h"
#include "support/ranks.h"

namespace ringdist {
namespace {

using Memory = std::vector<std::byte>;

uint64_t draw_seed(const char* test) {
  const uint64_t seed = std::random_device{}();
  std::printf("%s: seed %llu\n", test, static_cast<unsigned long long>(seed));
  return seed;
}

// Returns values with sums that round, overflow, and depend on their order.
Memory draw(DType dtype, int64_t count, std::mt19937_64& random) {
  using Limits = std::numeric_limits<float>;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    const auto mantissa = static_cast<float>(static_cast<int32_t>(random() & 0xffffff) - 0x800000);
    value = std::ldexp(mantissa, static_cast<int>(random() % 30) - 40);
    const float odd[] = {Limits::quiet_NaN(),
                         -Limits::quiet_NaN(),
                         Limits::infinity(),
                         -Limits::infinity(),
                         0.0f,
                         -0.0f,
                         Limits::max(),
                         Limits::denorm_min()};
    if (random() % 16 == 0) value = odd[random() % std::size(odd)];
  }
  Memory out(values.size() * dtype_size(dtype));
  if (dtype == DType::kFloat64)
    for (size_t i = 0; i < values.size(); ++i) {
      const double value = values[i] + 1e-12 * values[i];
      std::memcpy(out.data() + i * sizeof value, &value, sizeof value);
    }
  else
    narrow(dtype, values, out);
  return out;
}

#ifdef RINGDIST_SANITIZED
constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMin};
#else
constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProduct, ReduceOp::kMin,
                             ReduceOp::kMax};
#endif

Buffer over(Memory& memory, DType dtype, size_t begin, int64_t count) {
  Buffer out(dtype_size(dtype));
  out.append(memory.data() + begin * dtype_size(dtype), count);
  return out;
}

std::vector<std::string> reducing_algorithms(Collective kind) {
  std::vector<std::string> out{""};
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.supports(kind)) out.emplace_back(algorithm.name);
  return out;
}

// ---- in every run ------------------------------------------------------------------------------

struct Reduction {
  Collective kind;
  DType dtype;
  ReduceOp op;
};

// Returns the result of each rank, or of the root only for a reduce.
std::vector<Memory> run(Ranks& ranks, const Reduction& what, uint64_t seed) {
  constexpr int64_t kCount = 9001;
  std::vector<Memory> results(static_cast<size_t>(ranks.size()));
  ranks.run([&](int rank) {
    std::mt19937_64 random(seed + static_cast<uint64_t>(rank));
    const bool scatters = what.kind == Collective::kReduceScatter;
    Memory data = draw(what.dtype, scatters ? kCount * ranks.size() : kCount, random);
    Memory part(kCount * dtype_size(what.dtype));
    OpRequest request;
    request.kind = what.kind;
    request.dtype = what.dtype;
    request.reduce_op = what.op;
    request.root = ranks.size() - 1;
    request.count = kCount;
    if (scatters) request.input = over(data, what.dtype, 0, kCount * ranks.size());
    request.output = over(scatters ? part : data, what.dtype, 0, kCount);
    const Error error = run_op(ranks[rank], std::move(request));
    ASSERT_FALSE(error) << error.what();
    if (what.kind != Collective::kReduce || rank == ranks.size() - 1)
      results[static_cast<size_t>(rank)] = scatters ? part : data;
  });
  return results;
}

class EqualBits : public testing::TestWithParam<Collective> {};

TEST_P(EqualBits, InEveryRunWhateverTheTiming) {
  const uint64_t seed = draw_seed("values and delays");
  for (const std::string& algorithm : reducing_algorithms(GetParam())) {
    std::map<std::pair<DType, ReduceOp>, std::vector<Memory>> first;
    for (uint64_t repeat = 0; repeat < 4; ++repeat) {
      RanksOptions options;
      options.size = 4;
      options.network = {seed + repeat, std::chrono::microseconds(200)};
      options.config = {{"segment_bytes", "4096"}, {"algorithm", algorithm}};
      Ranks ranks(options);
      for (const DType dtype : kDTypes)
        for (const ReduceOp op : kOps) {
          SCOPED_TRACE(algorithm + " " + std::string(dtype_name(dtype)) + " " +
                       std::string(reduce_op_name(op)));
          const auto results = run(ranks, {GetParam(), dtype, op}, seed);
          const auto [known, added] = first.try_emplace({dtype, op}, results);
          for (size_t rank = 0; rank < results.size(); ++rank)
            ASSERT_TRUE(results[rank] == known->second[rank]) << "on rank " << rank;
          if (GetParam() != Collective::kAllreduce) continue;
          for (const Memory& result : results) ASSERT_TRUE(result == results[0]) << "ranks differ";
        }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Engine, EqualBits,
                         testing::Values(Collective::kAllreduce, Collective::kReduceScatter,
                                         Collective::kReduce),
                         [](const auto& info) { return std::string(collective_name(info.param)); });

// ---- at every place in a bucket ----------------------------------------------------------------

constexpr int64_t kTensor = 257;
constexpr int kOffsets = 50;

struct Place {
  int64_t bucket;  // elements
  int64_t offset;
};

// Returns places in buckets that are summed in one step, in shards, or in many segments. The
// places are at both ends, across the bounds of shards, and random.
std::vector<Place> draw_places(std::mt19937_64& random, int ranks) {
  std::vector<Place> out;
  for (const int64_t bucket : {kTensor, int64_t{1000}, int64_t{20011}, int64_t{60013}}) {
    out.push_back({bucket, 0});
    out.push_back({bucket, bucket - kTensor});
    for (int rank = 1; rank < ranks; ++rank)
      if (bucket > 2 * kTensor) out.push_back({bucket, bucket * rank / ranks - kTensor / 2});
  }
  while (out.size() < kOffsets) {
    const int64_t bucket = 300 + static_cast<int64_t>(random() % 60000);
    out.push_back({bucket, static_cast<int64_t>(random() % (bucket - kTensor + 1))});
  }
  return out;
}

// Sums one tensor at many places of a bucket with random other content.
class Buckets {
 public:
  Buckets(std::map<std::string, std::string> config, uint64_t seed) : random_(seed) {
    RanksOptions options;
    options.size = 3;
    options.network = {seed, std::chrono::microseconds(20)};
    options.config = std::move(config);
    options.config["segment_bytes"] = "4096";
    ranks_ = std::make_unique<Ranks>(options);
    places_ = draw_places(random_, options.size);
  }

  // Returns a description of the first place or rank with bits that differ from the first ones, or
  // "".
  std::string first_difference(DType dtype, ReduceOp op) {
    std::vector<Memory> tensors;
    for (int rank = 0; rank < ranks_->size(); ++rank)
      tensors.push_back(draw(dtype, kTensor, random_));
    Memory expected;
    for (const Place& place : places_) {
      const std::vector<Memory> results = reduce_at(place, dtype, op, tensors);
      if (expected.empty()) expected = results[0];
      for (const Memory& result : results)
        if (result != expected)
          return std::string(dtype_name(dtype)) + " " + std::string(reduce_op_name(op)) + ", at " +
                 std::to_string(place.offset) + " of " + std::to_string(place.bucket);
    }
    return "";
  }

 private:
  std::vector<Memory> reduce_at(const Place& place, DType dtype, ReduceOp op,
                                const std::vector<Memory>& tensors) {
    const uint64_t others = random_();
    std::vector<Memory> results(tensors.size());
    ranks_->run([&](int rank) {
      const auto mine = static_cast<size_t>(rank);
      std::mt19937_64 random(others + mine);
      Memory bucket = draw(dtype, place.bucket, random);
      std::byte* tensor = bucket.data() + static_cast<size_t>(place.offset) * dtype_size(dtype);
      std::ranges::copy(tensors[mine], tensor);
      OpRequest request;
      request.kind = Collective::kAllreduce;
      request.dtype = dtype;
      request.reduce_op = op;
      request.count = place.bucket;
      request.output = over(bucket, dtype, 0, place.bucket);
      const Error error = run_op((*ranks_)[rank], std::move(request));
      ASSERT_FALSE(error) << error.what();
      results[mine].assign(tensor, tensor + tensors[mine].size());
    });
    return results;
  }

  std::mt19937_64 random_;
  std::unique_ptr<Ranks> ranks_;
  std::vector<Place> places_;
};

class EqualBitsByLayout : public testing::TestWithParam<std::string> {};

TEST_P(EqualBitsByLayout, WhereverInABucketATensorLies) {
  Buckets buckets({{"algorithm", GetParam()}, {"deterministic", "layout"}},
                  draw_seed("values and places"));
  for (const DType dtype : kDTypes)
    for (const ReduceOp op : kOps) ASSERT_EQ(buckets.first_difference(dtype, op), "");
}

// Returns the algorithms that deterministic="layout" accepts, and "" for its own choice.
std::vector<std::string> layout_algorithms() {
  std::vector<std::string> out{""};
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.rank_ordered && algorithm.supports(Collective::kAllreduce))
      out.emplace_back(algorithm.name);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Engine, EqualBitsByLayout, testing::ValuesIn(layout_algorithms()),
                         [](const auto& info) {
                           return info.param.empty() ? "by_itself" : info.param;
                         });

// Other algorithms that cut tensors into shards begin each shard's sum at another rank. The test
// above would detect them.
TEST(EqualBitsElsewhere, AreNotThoseOfOtherAlgorithms) {
  constexpr int64_t kCount = 300;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.rank_ordered || !algorithm.supports(Collective::kAllreduce) ||
        algorithm.impl(Collective::kAllreduce).longest(kCount, 3) == kCount)
      continue;
    if (algorithm.hierarchical) continue;  // such an algorithm adds the ranks of one host in order
    Buckets buckets({{"algorithm", std::string(algorithm.name)}}, draw_seed("values and places"));
    EXPECT_NE(buckets.first_difference(DType::kFloat32, ReduceOp::kSum), "") << algorithm.name;
  }
}

}  // namespace
}  // namespace ringdist
