// Steps of a GradientCompressor in all their outcomes, with buckets that complete when the test
// requests it.
#include "compress/gradient_compressor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "compress/time_marker.h"
#include "fakes.h"

namespace ringdist {
namespace {

constexpr int64_t kCount = 2048;  // elements of each bucket, which has one parameter

CompressionOptions options_of(std::string codec, std::map<int64_t, std::string> schedule = {}) {
  CompressionOptions out;
  out.codec = std::move(codec);
  out.schedule = std::move(schedule);
  return out;
}

class GradientCompressors : public ::testing::Test {
 protected:
  using Flag = std::shared_ptr<std::atomic<bool>>;

  void open(CompressionOptions options) {
    GradientCompressorDelegate owner{[this](int64_t step) {
                                       asked.push_back(step);
                                       return at_step;
                                     },
                                     [this](Flag flag) { passes.push_back(std::move(flag)); },
                                     [](const std::string&) {},
                                     [this] { return std::make_shared<HostTimeMarker>(now); }};
    compressor = std::move(
        GradientCompressor::create(probe, {4, 0, false, 1024}, std::move(options), std::move(owner))
            .value());
    for (size_t i = 0; i < keys.size(); ++i) {
      ParameterInfo info = parameter_of(&keys[i], {32, kCount / 32});
      info.memory = parameter_memory;
      ASSERT_FALSE(compressor->add_parameter(std::move(info), "p" + std::to_string(i), {}));
    }
  }

  // Returns bucket `index` of two. It has one parameter with the gradient `value` in every
  // element.
  Bucket bucket_of(size_t index, float value) {
    gradients[index].assign(kCount, value);
    return {index,
            index == 1,
            DType::kFloat32,
            kCount,
            std::as_writable_bytes(std::span(gradients[index])),
            {{&keys[index], kCount}},
            nullptr};
  }

  // Passes in bucket `index` of two. If its op succeeds, each element of its residual becomes
  // `old_residual`.
  Error bring(size_t index, float old_residual = 1) {
    if (Error error = compressor->begin(index)) return error;
    const Bucket bucket = bucket_of(index, 1.0F);
    auto planned = compressor->plan(bucket);
    if (!planned.ok()) return planned.error();
    for (const CodecMapPart& part : planned.value().plan.codec_map->parts)
      if (part.next != nullptr) std::fill_n(part.next, part.count, old_residual);
    plans.push_back(std::move(planned.value()));
    return compressor->add(bucket, pending.emplace_back(std::make_shared<FakePending>()));
  }

  void end_all(bool failed = false) {
    for (const auto& one : pending) one->end(failed);
  }

  // Returns the norm of the residuals of both parameters if each element is `old_residual`.
  static double norm(double old_residual) { return old_residual * std::sqrt(2.0 * kCount); }

  FakeProbe probe;
  FakeMemory of_device;
  GradientMemory* parameter_memory = &host_memory();
  TimePoint now;
  std::pair<std::string, double> at_step;
  std::vector<int64_t> asked;
  std::vector<Flag> passes;
  std::array<int, 2> keys{};
  std::array<std::vector<float>, 2> gradients;
  std::vector<PlannedBucket> plans;
  std::vector<std::shared_ptr<FakePending>> pending;
  std::unique_ptr<GradientCompressor> compressor;
};

TEST_F(GradientCompressors, AStepTakesEffectWhenAllBucketsSucceeded) {
  open(options_of("int4"));
  ASSERT_FALSE(bring(0));
  ASSERT_FALSE(bring(1));
  pending[0]->end();
  EXPECT_EQ(compressor->residual_norm(), 0);
  EXPECT_EQ(compressor->report().step, -1);
  EXPECT_EQ(compressor->state().steps, 0);
  pending[1]->end();
  EXPECT_DOUBLE_EQ(compressor->residual_norm(), norm(1));
  EXPECT_EQ(compressor->report().step, 0);
  EXPECT_EQ(compressor->state().steps, 1);
  EXPECT_EQ(asked, (std::vector<int64_t>{0}));
}

TEST_F(GradientCompressors, OneBucketThatFailedLeavesAllAsItWasAndTheStepIsRepeated) {
  open(options_of("int4"));
  ASSERT_FALSE(bring(0));
  ASSERT_FALSE(bring(1));
  pending[0]->end();
  pending[1]->end(/*failed=*/true);
  EXPECT_EQ(compressor->residual_norm(), 0);
  EXPECT_EQ(compressor->report().step, -1);
  EXPECT_EQ(compressor->report().total_sent, 0);
  ASSERT_FALSE(bring(0));
  ASSERT_FALSE(bring(1));
  end_all();
  EXPECT_EQ(asked, (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(compressor->state().steps, 1);
}

TEST_F(GradientCompressors, AStepThatFailedHereAloneIsAdopted) {
  open(options_of("int4"));
  ASSERT_FALSE(bring(0));
  ASSERT_FALSE(bring(1));
  pending[0]->end();
  pending[1]->end(/*failed=*/true);
  const CompressionState committed = compressor->state_if_committed();
  EXPECT_EQ(committed.steps, 1);
  EXPECT_EQ(committed.residuals.size(), 2U);
  EXPECT_DOUBLE_EQ(compressor->residual_norm(), norm(1));
}

TEST_F(GradientCompressors, AStepOfWhichABucketIsMissingIsNotAdopted) {
  open(options_of("int4"));
  ASSERT_FALSE(bring(0));
  pending[0]->end(/*failed=*/true);
  EXPECT_EQ(compressor->state_if_committed().steps, 0);
  compressor->fail();
  EXPECT_EQ(compressor->state_if_committed().steps, 0);
  EXPECT_EQ(compressor->residual_norm(), 0);
}

TEST_F(GradientCompressors, APassThatIsCutShortDoesNotCount) {
  open(options_of("int4"));
  ASSERT_FALSE(bring(0));
  pending[0]->end();
  EXPECT_EQ(compressor->state().steps, 0);
  ASSERT_FALSE(bring(0, 2));  // begins the same step again
  EXPECT_EQ(asked, (std::vector<int64_t>{0, 0}));
  ASSERT_FALSE(bring(1, 2));
  end_all();
  EXPECT_DOUBLE_EQ(compressor->residual_norm(), norm(2));
}

TEST_F(GradientCompressors, ABucketThatDoesNotStartFailsTheStep) {
  open(options_of("int4"));
  ASSERT_FALSE(bring(0));
  compressor->fail();
  EXPECT_EQ(compressor->report().step, -1);  // the first bucket is still pending
  pending[0]->end();
  EXPECT_EQ(compressor->residual_norm(), 0);
  EXPECT_EQ(compressor->state().steps, 0);
  compressor->fail();  // between steps, so without effect
  ASSERT_FALSE(bring(0));
  ASSERT_FALSE(bring(1));
  end_all();
  EXPECT_EQ(compressor->state().steps, 1);
}

TEST_F(GradientCompressors, TheEndOfThePassCompletesAStepWithoutItsLastBucket) {
  open(options_of("int4"));
  ASSERT_FALSE(bring(0));
  pending[0]->end();
  EXPECT_EQ(compressor->state().steps, 0);
  *passes[0] = true;
  EXPECT_EQ(compressor->state().steps, 1);
  ASSERT_FALSE(bring(1));  // the first bucket of the next step
  EXPECT_EQ(asked, (std::vector<int64_t>{0, 1}));
}

TEST_F(GradientCompressors, TheNextStepWaitsForWhatIsOnItsWay) {
  open(options_of("int4"));
  ASSERT_FALSE(bring(0));
  ASSERT_FALSE(bring(1));
  int waited = 0;
  for (const auto& one : pending)
    one->on_wait = [&waited, one = one.get()] {
      ++waited;
      one->end();
    };
  ASSERT_FALSE(bring(0));
  EXPECT_EQ(waited, 2);
  EXPECT_EQ(asked, (std::vector<int64_t>{0, 1}));
  for (const auto& one : pending) one->on_wait = nullptr;
}

TEST_F(GradientCompressors, ARefusedCodecLeavesTheCompressorBetweenSteps) {
  open(options_of("int4"));
  at_step.first = "int7";
  EXPECT_TRUE(bring(0));
  compressor->fail();
  at_step.first = "none";
  ASSERT_FALSE(bring(0));
  ASSERT_FALSE(bring(1));
  end_all();
  EXPECT_EQ(compressor->report().codec, "none");
  EXPECT_EQ(compressor->state().steps, 1);
}

TEST_F(GradientCompressors, TheScheduleAndWarmUpSayTheCodec) {
  CompressionOptions options = options_of("int8", {{2, "int4"}});
  options.warmup_steps = 1;
  open(options);
  std::vector<std::string> codecs;
  for (int step = 0; step < 3; ++step) {
    ASSERT_FALSE(bring(0));
    ASSERT_FALSE(bring(1));
    end_all();
    codecs.push_back(compressor->report().codec);
  }
  EXPECT_EQ(codecs, (std::vector<std::string>{"none", "int8", "int4"}));
  EXPECT_FALSE(plans[0].plan.coded);
  EXPECT_TRUE(plans[2].plan.coded);
}

TEST_F(GradientCompressors, OnlyACompressorOfAutoTakesAuto) {
  open(options_of("int8"));
  at_step.first = kAuto;
  const Error error = bring(0);
  ASSERT_TRUE(error);
  EXPECT_EQ(error.message(),
            "ringdist: compress: schedule(step) may say 'auto' only if codec is 'auto'");
}

TEST_F(GradientCompressors, AutoLeavesGradientsAloneUntilItHasChosen) {
  open(options_of(kAuto));
  ASSERT_FALSE(bring(0));
  ASSERT_FALSE(bring(1));
  now += Milliseconds(5);
  end_all();
  EXPECT_FALSE(plans[0].plan.coded);
  EXPECT_TRUE(compressor->report().chosen.empty());
  for (int step = 0; step < 20 && compressor->report().chosen.empty(); ++step) {
    ASSERT_FALSE(bring(0));
    now += Milliseconds(1);
    ASSERT_FALSE(bring(1));
    now += Milliseconds(5);
    end_all();
  }
  EXPECT_EQ(compressor->report().chosen.size(), 2U);
  EXPECT_NE(compressor->report().reason, "");
  EXPECT_GT(probe.asked, 0);
  EXPECT_EQ(probe.asked_of, std::set<GradientMemory*>{&host_memory()});
}

TEST_F(GradientCompressors, AutoAsksWhatOpsCostWhereTheGradientsAre) {
  parameter_memory = &of_device;
  open(options_of(kAuto));
  for (int step = 0; step < 20 && compressor->report().chosen.empty(); ++step) {
    ASSERT_FALSE(bring(0));
    now += Milliseconds(1);
    ASSERT_FALSE(bring(1));
    now += Milliseconds(5);
    end_all();
  }
  EXPECT_EQ(compressor->report().chosen.size(), 2U);
  EXPECT_EQ(probe.asked_of, std::set<GradientMemory*>{&of_device});
}

// If a probe fails, for example because the group has failed, the caller gets the error and no
// state changes.
TEST_F(GradientCompressors, AProbeThatFailsFailsTheStepAndIsAskedAgain) {
  open(options_of(kAuto));
  probe.error = Error(ErrorKind::kPeerLost, "rank 1 is lost");
  const auto step = [this] {
    if (Error error = bring(0)) {
      compressor->fail();
      return error;
    }
    now += Milliseconds(1);
    EXPECT_FALSE(bring(1));
    now += Milliseconds(5);
    end_all();
    return Error();
  };
  Error failed;
  for (int i = 0; i < 20 && !failed; ++i) failed = step();
  EXPECT_EQ(failed.message(), "rank 1 is lost");
  const int64_t steps = compressor->state().steps;
  EXPECT_TRUE(compressor->report().chosen.empty());
  probe.error = {};
  for (int i = 0; i < 20 && compressor->report().chosen.empty(); ++i) ASSERT_FALSE(step());
  EXPECT_EQ(compressor->report().chosen.size(), 2U);
  EXPECT_GT(compressor->state().steps, steps);
}

TEST_F(GradientCompressors, BytesAndErrorsAreReported) {
  CompressionOptions options = options_of("int4");
  options.measure_every = 1;
  open(options);
  ASSERT_FALSE(bring(0, 0.5F));
  ASSERT_FALSE(bring(1, 0.5F));
  end_all();
  const CompressionReport first = compressor->report();
  EXPECT_DOUBLE_EQ(first.bytes_uncompressed, 2 * 0.75 * 2 * kCount * 4);
  EXPECT_LT(first.bytes_sent, first.bytes_uncompressed / 3);
  EXPECT_EQ(first.measured_step, 0);
  EXPECT_DOUBLE_EQ(first.relative_error, 0.5);  // ones were sent, and half of each is residual
  ASSERT_FALSE(bring(0));
  ASSERT_FALSE(bring(1));
  end_all();
  EXPECT_DOUBLE_EQ(compressor->report().total_sent, 2 * first.bytes_sent);
}

TEST_F(GradientCompressors, ANewLossScaleScalesTheResidual) {
  open(options_of("int4"));
  at_step.second = 2;
  ASSERT_FALSE(bring(0));
  ASSERT_FALSE(bring(1));
  end_all();
  EXPECT_DOUBLE_EQ(compressor->residual_norm(), norm(0.5));
  at_step.second = 8;
  ASSERT_FALSE(bring(0));
  EXPECT_EQ(plans.back().plan.codec_map->parts[0].residual[0], 4);
  EXPECT_DOUBLE_EQ(compressor->residual_norm(), norm(0.5));
  compressor->fail();
  at_step.second = -1;
  EXPECT_TRUE(bring(0));
}

TEST_F(GradientCompressors, ResidualsAreSavedAndLoaded) {
  open(options_of("int4"));
  ASSERT_FALSE(bring(0, 3));
  ASSERT_FALSE(bring(1, 3));
  end_all();
  CompressionState state = compressor->state();
  ASSERT_EQ(state.residuals.size(), 2U);
  ASSERT_FALSE(bring(0, 5));  // the load waits for this bucket and drops it
  pending.back()->on_wait = [&] { pending.back()->end(); };
  ASSERT_FALSE(compressor->load(state));
  EXPECT_TRUE(pending.back()->ended());
  EXPECT_DOUBLE_EQ(compressor->residual_norm(), norm(3));
  EXPECT_EQ(compressor->state().steps, 1);
  state.residuals[1].second.pop_back();
  EXPECT_TRUE(compressor->load(state));
  state.residuals.pop_back();
  state.scale = 1e300;
  EXPECT_TRUE(compressor->load(state));
  EXPECT_DOUBLE_EQ(compressor->residual_norm(), norm(3));
  end_all();
}

TEST_F(GradientCompressors, SpikesAreCutBeforeTheyAreEncoded) {
  CompressionOptions options = options_of("none");
  options.guard = 2;
  open(options);
  for (int step = 0; step < GradientClipper::kWarmup; ++step) {
    ASSERT_FALSE(bring(0));
    ASSERT_FALSE(bring(1));
    end_all();
  }
  ASSERT_FALSE(compressor->begin(0));
  const Bucket bucket = bucket_of(0, 10.0F);
  ASSERT_TRUE(compressor->plan(bucket).ok());
  EXPECT_FLOAT_EQ(gradients[0][0], 2);
}

TEST_F(GradientCompressors, APlanThatIsNotStartedEndsTheStep) {
  for (const size_t index : {0, 1}) {
    open(options_of("int4"));
    if (index == 1) {
      ASSERT_FALSE(bring(0));
    }
    ASSERT_FALSE(compressor->begin(index));
    ASSERT_TRUE(compressor->plan(bucket_of(index, 1.0F)).ok());
    EXPECT_EQ(compressor->residual_norm(), 0) << "before its ops start";
    compressor->fail();
    end_all();
    EXPECT_EQ(compressor->state().steps, 0);
    ASSERT_FALSE(bring(0));
    ASSERT_FALSE(bring(1));
    end_all();
    EXPECT_EQ(compressor->state().steps, 1);
  }
}

TEST(CompressorOptions, AGroupByLayoutTakesNoBlocks) {
  const CompressionGroup group{4, 0, true, 1024};
  EXPECT_TRUE(check_options(options_of("int8"), group));
  EXPECT_TRUE(check_options(options_of(kAuto), group));
  EXPECT_TRUE(check_options(options_of("none", {{3, "int4"}}), group));
  EXPECT_FALSE(check_options(options_of("none", {{3, "powersgd:2"}}), group));
  EXPECT_TRUE(check_options(options_of("int7"), {4, 0, false, 1024}));
}

}  // namespace
}  // namespace ringdist
