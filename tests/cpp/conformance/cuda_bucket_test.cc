// Compressed buckets of many parameters on fake devices. The bits must equal those of the CPU
// engine, with no more launches than for a few parameters.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "support/compressed.h"
#include "support/fake_devices.h"
#include "support/floats.h"
#include "support/ranks.h"

namespace ringdist {
namespace {

constexpr int kBucketRanks = 3;
constexpr int64_t kBucketSteps = 2;

// Returns a map of parameters with different sizes. They use the given codecs in rotation, with
// and without residuals.
std::shared_ptr<CodecMap> bucket_map(const std::vector<std::string>& specs, int parameters,
                                     Floats& residual) {
  auto map = std::make_shared<CodecMap>();
  for (int i = 0; i < parameters; ++i) {
    const CodecPair codecs =
        parse_codec_pair(specs[static_cast<size_t>(i) % specs.size()], kBucketRanks).value();
    const int64_t count = 1 + (i * 7919) % 700;
    const bool keeps = codecs.contribution->contraction() && i % 4 != 3;
    map->parts.push_back(
        {map->count(), count, codecs, keeps ? residual.data() + map->count() : nullptr});
  }
  return map;
}

class CudaBucket : public testing::Test {
 protected:
  using Bits = std::vector<Floats>;  // by rank: values, then residuals

  RanksOptions options(bool on_device) {
    RanksOptions out;
    out.size = kBucketRanks;
    out.config = {{"algorithm", "direct"}};
    if (on_device) out.make_runner = [this](int) { return devices_.maker(FakeDevices::By::kNccl); };
    return out;
  }
  Bits run(bool on_device, const std::vector<std::string>& specs, int parameters, DType dtype) {
    Ranks ranks(options(on_device));
    Bits out(2 * kBucketRanks);
    ranks.run([&](int rank) {
      Floats residual(static_cast<size_t>(parameters) * 700, 0.0f);
      const auto map = bucket_map(specs, parameters, residual);
      const auto count = static_cast<size_t>(map->count());
      Tensor tensor(dtype, count);
      for (int step = 0; step < kBucketSteps; ++step) {
        Floats values = gradient(20261127, rank, step, count);
        if (step == 1)
          std::fill_n(values.begin(), count / 2,
                      0.0f);  // half of the parameters have zero gradients
        tensor.set(values);
        OpRequest asked = tensor.request(ReduceOp::kAvg);
        asked.codec_map = map;
        const Error error =
            run_op(ranks[rank], on_device ? devices_.on_device(std::move(asked)) : asked);
        ASSERT_FALSE(error) << error.what();
      }
      out[static_cast<size_t>(2 * rank)] = tensor.values();
      out[static_cast<size_t>(2 * rank + 1)] = residual;
    });
    return out;
  }

  FakeDevices devices_;
};

TEST_F(CudaBucket, GivesTheBitsOfTheCpu) {
  const std::vector<std::string> specs{"int8", "int4", "none", "onebit", "topk:10", "bf16"};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    SCOPED_TRACE(dtype_name(dtype));
    const Bits here = run(false, specs, 150, dtype), there = run(true, specs, 150, dtype);
    for (size_t i = 0; i < here.size(); ++i)
      EXPECT_TRUE(same_but_for_nans(there[i], here[i]))
          << (i % 2 == 0 ? "result" : "residual") << " of rank " << i / 2;
  }
}

TEST_F(CudaBucket, TakesNoMoreLaunchesThanOneOfFewParameters) {
  const auto launches = [&](int parameters) {
    const int before = devices_.cuda.launches();
    (void)run(true, {"int8"}, parameters, DType::kFloat32);
    return devices_.cuda.launches() - before;
  };
  const int few = launches(12);
  EXPECT_GT(few, 0);
  EXPECT_EQ(launches(48), few);
}

}  // namespace
}  // namespace ringdist
