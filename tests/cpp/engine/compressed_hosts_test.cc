// Compressed ops of groups that span hosts, over the simulated network. For every layout, all
// ranks end with the same bits, and results and residuals sum to the inputs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "support/compressed.h"
#include "support/sim_ranks.h"

namespace ringdist {
namespace {

constexpr uint64_t kLayoutSeed = 20261125;
constexpr int64_t kLayoutCount = 6007;
constexpr int kSteps = 6;

struct Layout {
  const char* name;
  std::vector<int> hosts;  // by rank
};

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> kAll{
      {"one_host", {0, 0, 0, 0}},      {"apart", {0, 1, 2, 3}},    {"pairs", {0, 0, 1, 1}},
      {"unequal", {0, 1, 1, 2, 2, 2}}, {"dealt", {0, 1, 0, 1, 0}}, {"many", {0, 0, 0, 1, 1, 1, 2}}};
  return kAll;
}

struct LayoutCase {
  std::string codec;
  const Layout* layout;
  const char* algorithm = "";
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int size() const { return static_cast<int>(layout->hosts.size()); }
};

std::string layout_case_name(const testing::TestParamInfo<LayoutCase>& info) {
  const LayoutCase& c = info.param;
  std::string out = c.codec + "_" + c.layout->name + "_" + c.algorithm + "_" +
                    std::string(dtype_name(c.dtype)) + "_" + std::string(reduce_op_name(c.op));
  for (char& letter : out)
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  return out;
}

SimRanksOptions simulated(const LayoutCase& c) {
  SimRanksOptions out;
  out.hosts = c.layout->hosts;
  out.network.costs = default_costs(1e9, std::chrono::microseconds(50));
  out.network.jitter = std::chrono::microseconds(30);
  out.algorithm = c.algorithm;
  out.segment_bytes = 4096;
  return out;
}

// Returns each rank's gradient of the first step.
std::vector<Tensor> gradients(const LayoutCase& c, int64_t count) {
  std::vector<Tensor> out(c.size(), Tensor(c.dtype, count));
  for (int rank = 0; rank < c.size(); ++rank) out[rank].set(gradient(kLayoutSeed, rank, 0, count));
  return out;
}

class CompressedBetweenHosts : public testing::TestWithParam<LayoutCase> {};

TEST_P(CompressedBetweenHosts, ResultsAndResidualsSumToTheInputs) {
  const LayoutCase& c = GetParam();
  const int size = c.size();
  SimRanks ranks(simulated(c));
  std::vector<double> inputs(kLayoutCount);
  std::vector<double> results(kLayoutCount);
  std::vector<std::vector<float>> residuals(size, std::vector<float>(kLayoutCount));
  for (int step = 0; step < kSteps; ++step) {
    std::vector<Tensor> tensors(size, Tensor(c.dtype, kLayoutCount));
    std::vector<std::vector<float>> next(
        size, std::vector<float>(kLayoutCount, std::numeric_limits<float>::quiet_NaN()));
    for (int rank = 0; rank < size; ++rank) {
      // A rank with a zero gradient keeps its residual.
      const bool silent = step == 3 && rank == size - 1;
      tensors[rank].set(silent ? std::vector<float>(kLayoutCount)
                               : gradient(kLayoutSeed, rank, step, kLayoutCount));
      const std::vector<float> in = tensors[rank].values();
      for (int64_t i = 0; i < kLayoutCount; ++i) inputs[i] += in[i];
    }
    (void)ranks.time_of([&](int rank) {
      OpRequest request = tensors[rank].request(c.op);
      request.codec_map = make_map(c.codec, size, kLayoutCount, &residuals[rank], &next[rank]);
      return request;
    });
    for (int rank = 0; rank < size; ++rank) {
      ASSERT_TRUE(tensors[rank].bytes() == tensors[0].bytes()) << "rank " << rank;
      for (const float x : next[rank]) ASSERT_TRUE(std::isfinite(x)) << "rank " << rank;
    }
    residuals.swap(next);
    const std::vector<float> out = tensors[0].values();
    const double weight = c.op == ReduceOp::kAvg ? size : 1;
    for (int64_t i = 0; i < kLayoutCount; ++i) results[i] += weight * out[i];
  }
  double off = 0;
  double all = 0;
  for (int64_t i = 0; i < kLayoutCount; ++i) {
    double out = results[i];
    for (const auto& residual : residuals) out += residual[i];
    off += (inputs[i] - out) * (inputs[i] - out);
    all += inputs[i] * inputs[i];
  }
  EXPECT_LT(std::sqrt(off / all), 1e-6) << "seed " << kLayoutSeed;
}

std::vector<LayoutCase> layout_cases() {
  std::vector<LayoutCase> out;
  for (const Layout& layout : layouts()) {
    for (const char* codec : {"int4", "onebit", "int2>int8", "topk:0.01"})
      out.push_back({codec, &layout});
    out.push_back({"int8", &layout, "", DType::kBFloat16, ReduceOp::kAvg});
    out.push_back({"int4", &layout, "hierarchical_direct", DType::kFloat16, ReduceOp::kAvg});
    out.push_back({"int4", &layout, "hierarchical", DType::kFloat32, ReduceOp::kAvg});
    out.push_back({"bf16", &layout, "hierarchical"});
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Layouts, CompressedBetweenHosts, testing::ValuesIn(layout_cases()),
                         layout_case_name);

// Codecs without loss give the bits of the uncompressed op, if they use the same algorithm. The op
// is long enough for that.
TEST(CompressedBetweenHostsExactly, GivesTheBitsOfAnOpWithout) {
  constexpr int64_t kLong = 60'007;
  for (const Layout& layout : layouts()) {
    for (const char* algorithm : {"", "hierarchical", "hierarchical_direct"}) {
      const LayoutCase c{"lossless", &layout, algorithm};
      std::vector<std::vector<std::byte>> first;
      for (const bool coded : {false, true}) {
        SimRanks ranks(simulated(c));
        std::vector<Tensor> tensors = gradients(c, kLong);
        (void)ranks.time_of([&](int rank) {
          OpRequest request = tensors[rank].request(c.op);
          if (coded) request.codec_map = make_map(c.codec, c.size(), kLong, nullptr);
          return request;
        });
        for (int rank = 0; rank < c.size(); ++rank) {
          if (!coded) first.push_back(tensors[rank].bytes());
          ASSERT_TRUE(tensors[rank].bytes() == first[rank])
              << layout.name << ", " << algorithm << ", rank " << rank;
        }
      }
    }
  }
}

// If ranks of a host have the same values, int4 loses less of their sum than of each value. A
// value is encoded once per host, so only the leader of its column has a residual.
TEST(CompressedBetweenHostsCarriers, KeepTheResidualOfTheirHosts) {
  const Layout layout{"pairs", {0, 0, 1, 1}};
  SimRanks ranks(simulated({"int4", &layout}));
  std::vector<std::vector<float>> data(4);
  std::vector<std::vector<float>> residuals(4, std::vector<float>(kLayoutCount));
  for (int rank = 0; rank < 4; ++rank) data[rank] = gradient(kLayoutSeed, rank, 0, kLayoutCount);
  (void)ranks.time_of([&](int rank) {
    OpRequest request = allreduce_request(data[rank], DType::kFloat32, ReduceOp::kSum);
    request.codec_map = whole_map("int4", 4, kLayoutCount, residuals[rank].data());
    return request;
  });
  for (int64_t i = 0; i < kLayoutCount; ++i)
    for (const int first : {0, 2})
      ASSERT_TRUE(residuals[first][i] == 0 || residuals[first + 1][i] == 0) << "element " << i;
}

// Shards and their parts may be empty if elements share blocks. A small tensor may lie in a single
// shard of many.
TEST(CompressedBetweenHostsFew, EndWithTheSumHoweverFewTheElements) {
  for (const Layout& layout : layouts())
    for (const char* codec : {"int8", "topk:0.5", "lossless"})
      for (const char* algorithm : {"", "hierarchical", "hierarchical_direct"})
        for (const int64_t count : {1, 63, 85, 365, 1024, 2048, 2925}) {
          const LayoutCase c{codec, &layout, algorithm};
          SimRanks ranks(simulated(c));
          std::vector<Tensor> tensors(c.size(), Tensor(c.dtype, count));
          for (Tensor& tensor : tensors) tensor.set(std::vector<float>(count, 1));
          const std::string text = std::string(layout.name) + ", " + codec + ", " + algorithm +
                                   ", " + std::to_string(count);
          (void)ranks.time_of([&](int rank) {
            OpRequest request = tensors[rank].request(c.op);
            request.codec_map = whole_map(codec, c.size(), count);
            return request;
          });
          ASSERT_FALSE(HasFailure()) << text;
          for (const Tensor& tensor : tensors)
            ASSERT_TRUE(tensor.bytes() == tensors[0].bytes()) << text;
          ASSERT_NEAR(tensors[0].values()[0], c.size(), 0.1) << text;
        }
}

// If all ranks share a host, the requested codec is used with any forced algorithm. The
// hierarchical algorithms are `direct` there.
TEST(CompressedBetweenHostsOnOne, GivesTheBitsOfDirect) {
  std::vector<std::byte> first;
  for (const char* algorithm : {"direct", "hierarchical", "hierarchical_direct"}) {
    const LayoutCase c{"int4", layouts().data(), algorithm};
    SimRanks ranks(simulated(c));
    std::vector<Tensor> tensors = gradients(c, kLayoutCount);
    (void)ranks.time_of([&](int rank) {
      OpRequest request = tensors[rank].request(c.op);
      request.codec_map = make_map(c.codec, c.size(), kLayoutCount, nullptr);
      return request;
    });
    if (first.empty()) first = tensors[0].bytes();
    ASSERT_TRUE(tensors[0].bytes() == first) << algorithm;
  }
}

// The ranks of a host add before they encode, so large values that cancel do not hide small ones.
TEST(CompressedBetweenHostsInside, NothingIsLost) {
  const std::vector<Layout> with_pairs{{"two_and_one", {0, 0, 1}}, {"pairs", {0, 0, 1, 1}}};
  for (const Layout& layout : with_pairs) {
    const LayoutCase c{"int8", &layout};
    SimRanks ranks(simulated(c));
    std::vector<Tensor> tensors(c.size(), Tensor(c.dtype, kLayoutCount));
    for (const int rank : {0, 1}) {
      std::vector<float> values(kLayoutCount, 0.5);
      for (int64_t i = 0; i < kLayoutCount; i += 16) values[i] = rank == 0 ? 1000 : -1000;
      tensors[rank].set(values);
    }
    (void)ranks.time_of([&](int rank) {
      OpRequest request = tensors[rank].request(c.op);
      request.codec_map = whole_map("int8", c.size(), kLayoutCount);
      return request;
    });
    const std::vector<float> sum = tensors[0].values();
    for (int64_t i = 0; i < kLayoutCount; ++i)
      ASSERT_NEAR(sum[i], i % 16 == 0 ? 0 : 1, 0.03) << layout.name << ", element " << i;
  }
}

// The input of a reduce-scatter comes from all ranks. The output of an allgather comes from the
// owner of each part.
TEST(CompressedBetweenHostsParts, AreSummedAndGatheredAlike) {
  constexpr int64_t kPart = 1500;
  for (const Layout& layout : layouts()) {
    const LayoutCase c{"int8", &layout};
    const int size = c.size();
    SimRanks ranks(simulated(c));
    std::vector<std::vector<float>> input(size);
    std::vector<std::vector<float>> part(size, std::vector<float>(kPart));
    std::vector<std::vector<float>> gathered(size, std::vector<float>(kPart * size));
    std::vector<std::vector<float>> residuals(size, std::vector<float>(kPart * size));
    for (int rank = 0; rank < size; ++rank)
      input[rank] = gradient(kLayoutSeed, rank, 0, static_cast<size_t>(kPart * size));
    const auto request = [&](Collective kind, std::vector<float>& in, std::vector<float>& out,
                             float* residual) {
      OpRequest made;
      made.kind = kind;
      made.reduce_op = kind == Collective::kAllgather ? ReduceOp::kNone : ReduceOp::kSum;
      made.count = kPart;
      made.input = Buffer(sizeof(float));
      made.input.append(in.data(), static_cast<int64_t>(in.size()));
      made.output = Buffer(sizeof(float));
      made.output.append(out.data(), static_cast<int64_t>(out.size()));
      made.codec_map = whole_map(c.codec, size, static_cast<int64_t>(in.size()), residual);
      return made;
    };
    (void)ranks.time_of([&](int rank) {
      return request(Collective::kReduceScatter, input[rank], part[rank], residuals[rank].data());
    });
    double off = 0;
    double all = 0;
    for (int64_t i = 0; i < kPart * size; ++i) {
      double sum = -part[i / kPart][i % kPart];
      for (int rank = 0; rank < size; ++rank) sum += input[rank][i] - residuals[rank][i];
      off += sum * sum;
      all += part[i / kPart][i % kPart] * part[i / kPart][i % kPart];
    }
    EXPECT_LT(std::sqrt(off / all), 1e-6) << layout.name << ", seed " << kLayoutSeed;
    (void)ranks.time_of([&](int rank) {
      return request(Collective::kAllgather, part[rank], gathered[rank], nullptr);
    });
    for (int rank = 0; rank < size; ++rank) {
      ASSERT_TRUE(gathered[rank] == gathered[0]) << layout.name << ", rank " << rank;
      for (int64_t i = 0; i < kPart; ++i)
        ASSERT_NEAR(gathered[0][rank * kPart + i], part[rank][i], 0.2) << layout.name;
    }
  }
}

}  // namespace
}  // namespace ringdist
