// Compressed collectives on fake streams. For every codec, results and residuals must have the
// bits of the CPU engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cuda/stream/kernel_codec_of.h"
#include "cuda/stream/stream_schedule.h"
#include "plan/compressed_plan.h"
#include "support/compressed.h"
#include "support/fake_cuda.h"
#include "support/fake_link.h"
#include "support/fake_streams.h"
#include "support/floats.h"
#include "support/ranks.h"

namespace ringdist::gpu {
namespace {

constexpr size_t kElements = 5003;
constexpr uint64_t kGradients = 20261125;

bool takes_feedback(const CompressedCase& c) {
  const CodecPair pair = parse_codec_pair(c.codec, c.size).value();
  return pair.contribution->contraction() && pair.result->contraction();
}

// The state of a rank before and after an op.
struct RankState {
  RankState(const CompressedCase& c, int rank, int step) : tensor(c.dtype, kElements) {
    std::vector<float> in = gradient(kGradients, rank, step, kElements);
    if (step == 1 && rank == 0) std::fill(in.begin(), in.begin() + kElements / 2, 0.0f);
    if (step == 2 && rank == c.size - 1) in[77] = std::numeric_limits<float>::quiet_NaN();
    tensor.set(in);
    if (takes_feedback(c)) residual = gradient(kGradients + 1, rank, step, kElements);
    next.assign(kElements, 7.0f);
  }
  OpRequest request(const CompressedCase& c) {
    OpRequest out = tensor.request(c.op);
    const bool feedback = !residual.empty();
    out.codec_map = make_map(c.codec, c.size, kElements, feedback ? &residual : nullptr,
                             feedback ? &next : nullptr);
    return out;
  }

  Tensor tensor;
  std::vector<float> residual, next;
};

using States = std::vector<std::unique_ptr<RankState>>;

States make_states(const CompressedCase& c, int step) {
  States out;
  for (int rank = 0; rank < c.size; ++rank)
    out.push_back(std::make_unique<RankState>(c, rank, step));
  return out;
}

class CodedStream : public testing::TestWithParam<CompressedCase> {
 protected:
  void run_on_streams(const States& states, uint64_t number) {
    FakeStreams streams;
    FakeCuda cuda(streams);
    FakeNetworkModel wire;
    std::vector<std::unique_ptr<FakeLink>> links;
    int malformed = 0;
    for (int rank = 0; rank < c_.size; ++rank) {
      OpRequest asked = states[static_cast<size_t>(rank)]->request(c_);
      DeviceOp device;
      device.request = asked;
      device.output = asked.output;
      device.number = number;
      Shape shape{rank, c_.size, 0, asked.count};
      shape.shards = compressed_shards(*asked.codec_map, c_.size);
      const StreamSchedule schedule =
          make_stream_schedule(*find_algorithm(c_.algorithm), Collective::kAllreduce, shape);
      links.push_back(std::make_unique<FakeLink>(wire, streams, rank));
      StreamOp op(device, *schedule.steps, rank, c_.size, cuda, streams.make());
      const auto arithmetic = compressed_stream_arithmetic(op, &malformed);
      const Error error = enqueue(schedule, op, *arithmetic, *links.back());
      ASSERT_FALSE(error) << error.what();
      maps_.push_back(asked.codec_map);
    }
    ASSERT_FALSE(streams.progress()) << "streams that wait for ever";
    EXPECT_EQ(cuda.alive(), 0u);
    EXPECT_EQ(malformed, 0);
  }

  const CompressedCase& c_ = GetParam();

 private:
  std::vector<std::shared_ptr<const CodecMap>> maps_;
};

TEST_P(CodedStream, GivesTheBitsOfTheCpu) {
  RanksOptions options;
  options.size = c_.size;
  options.config = {{"algorithm", c_.algorithm}};
  Ranks ranks(options);
  constexpr int kSteps = 3;
  for (int step = 0; step < kSteps; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const States here = make_states(c_, step);
    const States there = make_states(c_, step);
    ranks.run([&](int rank) {
      const Error error = run_op(ranks[rank], here[static_cast<size_t>(rank)]->request(c_));
      ASSERT_FALSE(error) << error.what();
    });
    run_on_streams(there, static_cast<uint64_t>(step + 1));
    for (size_t rank = 0; rank < here.size(); ++rank) {
      EXPECT_TRUE(same_but_for_nans(there[rank]->tensor.values(), here[rank]->tensor.values()))
          << "result of rank " << rank;
      EXPECT_TRUE(same_but_for_nans(there[rank]->next, here[rank]->next))
          << "residual of rank " << rank;
    }
  }
}

// Returns each example of every codec that has kernels, and cases for all other parameters.
std::vector<CompressedCase> cases() {
  std::vector<CompressedCase> out;
  for (const CodecRow& row : codecs())
    for (const std::string_view example : row.examples)
      if (row.name != "none" && kernel_codec_of(*parse_codec(example).value())) {
        out.push_back({std::string(example)});
        const std::string rotated = std::string(example) + "+h";
        if (parse_codec(rotated).ok()) out.push_back({rotated});  // exact codecs take no rotation
      }
  for (const char* algorithm : {"direct", "ring"})
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16})
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg})
        for (const char* codec : {"int8", "int4>int8", "bf16", "lossless"})
          for (const int size : {2, 4}) out.push_back({codec, algorithm, size, dtype, op});
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, CodedStream, testing::ValuesIn(cases()), coded_case_name);

}  // namespace
}  // namespace ringdist::gpu
