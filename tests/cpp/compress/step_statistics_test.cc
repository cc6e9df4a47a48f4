#include <gtest/gtest.h>

#include <cmath>

#include "compress/compression_options.h"
#include "compress/step_transaction.h"

namespace ringdist {
namespace {

// A parameter with a residual of one value.
struct WithResidual {
  explicit WithResidual(float value) {
    residual.replace(FloatBuffer(host_memory(), 1));
    set_residual(value);
    parameter.residual = &residual;
  }
  void set_residual(float value) { residual.values.assign({&value, 1}); }

  Residual residual;
  Parameter parameter{{nullptr, nullptr, MemoryOrder({1}), false}, {}, {}, {}, {}, {}, {}, {}};
};

TEST(StepRecords, CountsStepsAndTheSumOfThem) {
  StepStatistics record("int4");
  EXPECT_EQ(record.now().step, -1);
  EXPECT_EQ(record.now().codec, "int4");
  for (int step = 0; step < 2; ++step) {
    record.begin(step, "int8");
    record.add_bytes(100, 10);
    record.add_bytes(50, 50);
    record.succeed();
    EXPECT_EQ(record.now().bytes_uncompressed, 150);
    EXPECT_EQ(record.now().bytes_sent, 60);
    EXPECT_EQ(record.now().total_uncompressed, 150 * (step + 1));
    EXPECT_EQ(record.now().total_sent, 60 * (step + 1));
    EXPECT_EQ(record.before().step, step - 1);
  }
  EXPECT_EQ(record.now().measured_step, -1);
}

TEST(StepRecords, OfAStepThatFailsNothingCounts) {
  StepStatistics record("int4");
  record.begin(0, "int4");
  record.add_bytes(100, 10);
  record.succeed();
  const WithResidual owing(3);
  record.begin(1, "int8");
  record.choose({"int8"}, "because");
  record.add_bytes(7, 7);
  record.measure(owing.parameter, 36);
  record.fail();
  EXPECT_EQ(record.now().step, 0);
  EXPECT_EQ(record.now().codec, "int4");
  EXPECT_EQ(record.now().total_uncompressed, 100);
  EXPECT_TRUE(record.now().chosen.empty());
  EXPECT_EQ(record.now().reason, "");
  record.begin(1, "int4");
  record.succeed();
  EXPECT_EQ(record.now().measured_step, -1);  // measurements of the failed step are discarded
}

TEST(StepRecords, AChoiceIsKeptAsLongAsAutoIsAsked) {
  StepStatistics record(kAuto);
  record.begin(0, kAuto);
  record.choose({"int8"}, "because");
  record.begin(1, kAuto);
  EXPECT_EQ(record.now().chosen, std::vector<std::string>{"int8"});
  record.begin(2, "int4");
  EXPECT_TRUE(record.now().chosen.empty());
  EXPECT_EQ(record.now().reason, "");
}

TEST(StepRecords, MeasuresWhatWasLostOfWhatWasGiven) {
  StepStatistics record("int4");
  WithResidual a(9), b(9);  // replaced by the new residuals
  record.begin(5, "int4");
  record.measure(a.parameter, 60);
  record.measure(b.parameter, 40);
  a.set_residual(3);
  b.set_residual(4);
  record.succeed();
  EXPECT_EQ(record.now().measured_step, 5);
  EXPECT_DOUBLE_EQ(record.now().relative_error, 0.5);  // sqrt(25 / 100)
  EXPECT_DOUBLE_EQ(record.now().total_relative_error, 0.5);
  record.begin(6, "int4");
  record.measure(a.parameter, 300);
  a.set_residual(0);
  record.succeed();
  EXPECT_EQ(record.now().measured_step, 6);
  EXPECT_EQ(record.now().relative_error, 0);
  EXPECT_DOUBLE_EQ(record.now().total_relative_error, 0.25);  // sqrt(25 / 400)
}

TEST(StepRecords, NothingIsMeasuredOfZerosOrInfinity) {
  StepStatistics record("int4");
  const WithResidual owing(1);
  for (const double given : {0.0, static_cast<double>(INFINITY)}) {
    record.begin(0, "int4");
    record.measure(owing.parameter, given);
    record.succeed();
    EXPECT_EQ(record.now().measured_step, -1);
    EXPECT_EQ(record.now().total_relative_error, 0);
  }
  record.begin(0, "int4");
  record.measure(owing.parameter, 1);
  record.drop_measurement();
  record.succeed();
  EXPECT_EQ(record.now().measured_step, -1);
}

}  // namespace
}  // namespace ringdist
