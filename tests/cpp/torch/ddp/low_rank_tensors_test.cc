// PowerSGD by ATen, on CPU tensors, which take the same code path. Several objects play the ranks,
// and the test averages their factors.
#include "torch/ddp/low_rank_tensors.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <future>
#include <limits>

#include "compress/low_rank.h"
#include "engine/communicator.h"
#include "engine/context/context.h"

namespace ringdist {
namespace {

constexpr int64_t kStagesSeed = 20261127;
const std::vector<MatrixShape> kStagesShapes{{40, 30, 2}, {70, 150, 4}, {1, 5, 1}, {64, 110, 3}};

// One rank's bucket, its residuals, and the right factors where approximations begin.
struct RankOfStages {
  RankOfStages(const std::vector<MatrixShape>& shapes, at::ScalarType dtype,
               bool new_residual = true)
      : shapes(shapes) {
    int64_t count = 0;
    for (const MatrixShape& shape : shapes) count += shape.count();
    bucket = at::zeros({count}, at::TensorOptions(dtype));
    int64_t offset = 0;
    for (const MatrixShape& shape : shapes) {
      const auto buffer = [](int64_t size, float value) {
        FloatBuffer out(host_memory(), static_cast<size_t>(size));
        out.assign(std::vector<float>(out.size(), value));
        return out;
      };
      residuals.push_back(buffer(shape.count(), 0));
      next_residuals.push_back(buffer(shape.count(), std::numeric_limits<float>::quiet_NaN()));
      rights.push_back(buffer(shape.right(), 0));
      rights.back().assign(first_right(shape));
      next_rights.push_back(buffer(shape.right(), std::numeric_limits<float>::quiet_NaN()));
      slices.push_back({offset, shape.count(), shape.rows});
      offset += shape.count();
    }
    if (!new_residual) residuals.clear();
  }
  std::unique_ptr<LowRankTensors> begin() {
    std::vector<LowRankInput> inputs;
    for (size_t i = 0; i < shapes.size(); ++i) {
      ParameterSlice slice = slices[i];
      if (!residuals.empty()) {
        slice.residual = residuals[i].data();
        slice.next = next_residuals[i].data();
      }
      inputs.push_back({{slice, shapes[i]}, rights[i], next_rights[i]});
    }
    return std::make_unique<LowRankTensors>(bucket, inputs);
  }
  void commit() {
    if (!residuals.empty()) residuals.swap(next_residuals);
    rights.swap(next_rights);
  }
  at::Tensor values(size_t i) const { return bucket.narrow(0, slices[i].offset, slices[i].count); }
  at::Tensor old_residual(size_t i) const { return at::tensor(residuals[i].on_host()); }

  std::vector<MatrixShape> shapes;
  at::Tensor bucket;
  std::vector<FloatBuffer> residuals, next_residuals, rights, next_rights;
  std::vector<ParameterSlice> slices;
};

void average(const std::vector<at::Tensor>& of_ranks) {
  const at::Tensor mean = at::stack(of_ranks).mean(0);
  for (const at::Tensor& one : of_ranks) one.copy_(mean);
}

void reduce(std::vector<RankOfStages>& ranks) {
  std::vector<std::unique_ptr<LowRankTensors>> stages;
  for (RankOfStages& rank : ranks) stages.push_back(rank.begin());
  for (at::Tensor (LowRankTensors::*stage)() : {&LowRankTensors::lefts, &LowRankTensors::rights}) {
    std::vector<at::Tensor> factors;
    for (const auto& one : stages) factors.push_back((one.get()->*stage)());
    average(factors);
  }
  for (const auto& one : stages) one->finish();
  for (RankOfStages& rank : ranks) rank.commit();
}

class Stages : public testing::TestWithParam<std::tuple<int, at::ScalarType>> {
 protected:
  Stages() { at::manual_seed(kStagesSeed); }
};

TEST_P(Stages, ResultsAndResidualsSumToTheInputs) {
  const auto [size, dtype] = GetParam();
  std::vector<RankOfStages> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.emplace_back(kStagesShapes, dtype);
  std::vector<at::Tensor> given(kStagesShapes.size()), got(kStagesShapes.size());
  for (size_t i = 0; i < given.size(); ++i)
    given[i] = got[i] = at::zeros({kStagesShapes[i].count()}, at::kDouble);
  for (int step = 0; step < 4; ++step) {
    for (RankOfStages& rank : ranks) rank.bucket.normal_();
    if (step == 2) ranks[1].values(0).zero_();  // an unused parameter keeps its residual
    const at::Tensor old_residual = ranks[1].old_residual(0);
    for (size_t i = 0; i < given.size(); ++i)
      for (const RankOfStages& rank : ranks) given[i] = given[i] + rank.values(i).to(at::kDouble);
    reduce(ranks);
    if (step == 2 && dtype == at::kFloat) {
      EXPECT_TRUE(at::equal(ranks[1].old_residual(0), old_residual));
    }
    for (size_t i = 0; i < got.size(); ++i) {
      for (const RankOfStages& rank : ranks)
        EXPECT_TRUE(at::equal(rank.values(i), ranks[0].values(i)));
      got[i] = got[i] + ranks[0].values(i).to(at::kDouble) * size;
    }
  }
  for (size_t i = 0; i < got.size(); ++i) {
    for (const RankOfStages& rank : ranks) got[i] = got[i] + rank.old_residual(i).to(at::kDouble);
    const double off = (got[i] - given[i]).norm().item<double>();
    EXPECT_LT(off / given[i].norm().item<double>(), 1e-6)
        << "matrix " << i << ", seed " << kStagesSeed;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Stages,
                         testing::Combine(testing::Values(2, 3),
                                          testing::Values(at::kFloat, at::kBFloat16, at::kHalf)));

// Compares with the implementation on the host. The first `right` is the same, and later ones span
// the same space.
TEST(LowRankTensors, ApproximatesAsTheHostDoes) {
  at::manual_seed(kStagesSeed);
  const MatrixShape shape{70, 150, 4};
  const auto context = Context::create({}).value();
  CommunicatorOptions options;
  options.name = "alone";
  options.members = {0};
  const auto group = Communicator::create(context, std::move(options)).value();
  {
    LowRankReducer host(group);
    std::vector<RankOfStages> here(1, {{shape}, at::kFloat}), there(1, {{shape}, at::kFloat});
    there[0] = RankOfStages({shape}, at::kFloat);  // with its own memory
    for (int step = 0; step < 3; ++step) {
      here[0].bucket.normal_();
      there[0].bucket.copy_(here[0].bucket);
      std::promise<Error> done;
      auto* const values = reinterpret_cast<std::byte*>(here[0].bucket.data_ptr<float>());
      host.reduce(
          {{shape, DType::kFloat32, values, here[0].residuals[0].data(), here[0].rights[0].data(),
            here[0].next_residuals[0].data(), here[0].next_rights[0].data()}},
          [&](Error error) { done.set_value(std::move(error)); });
      EXPECT_FALSE(done.get_future().get());
      here[0].commit();
      reduce(there);
      EXPECT_TRUE(at::allclose(there[0].bucket, here[0].bucket, 1e-3, 1e-4)) << "step " << step;
      EXPECT_TRUE(at::allclose(there[0].old_residual(0), here[0].old_residual(0), 1e-3, 1e-4))
          << "step " << step;
    }
  }
  group->close();
  context->shutdown();
}

// Averages the gradients on two ranks, one after the other. The last one must arrive exactly.
void expect_whole(const MatrixShape& shape, const std::vector<at::Tensor>& gradients) {
  std::vector<RankOfStages> ranks(2, {{shape}, at::kFloat});
  ranks[1] = RankOfStages({shape}, at::kFloat);  // with its own memory
  for (const at::Tensor& gradient : gradients) {
    for (int rank = 0; rank < 2; ++rank) ranks[rank].bucket.copy_(gradient.flatten() * (1 + rank));
    reduce(ranks);
  }
  const at::Tensor expected = gradients.back().flatten().to(at::kDouble) * 1.5;
  const double norm = expected.norm().item<double>();
  EXPECT_LT((ranks[0].bucket.to(at::kDouble) - expected).norm().item<double>(), 1e-4 * norm);
  for (const RankOfStages& rank : ranks)
    EXPECT_LT(rank.old_residual(0).to(at::kDouble).norm().item<double>(), 1e-4 * norm);
}

const MatrixShape kLate{50, 60, 4};

at::Tensor of_rank(int64_t rank, double scale = 1) {
  at::manual_seed(kStagesSeed);
  const at::Tensor u = at::randn({kLate.rows, 4}), v = at::randn({4, kLate.columns});
  return u.narrow(1, 0, rank).mm(v.narrow(0, 0, rank)) * scale;
}

TEST(LowRankTensors, RecoversAMatrixOfAnyMagnitude) {
  for (const double scale : {1e-30, 1e-20, 1.0, 1e17, 1e30}) {
    SCOPED_TRACE(scale);
    expect_whole(kLate, {of_rank(2, scale), of_rank(2, scale)});
  }
}

TEST(LowRankTensors, LearnsAfterStepsOfZeros) {
  expect_whole(kLate, {of_rank(0), of_rank(0), of_rank(2)});
}

TEST(LowRankTensors, FollowsARankThatGrows) {
  expect_whole(
      kLate, {of_rank(1), of_rank(4), of_rank(4), of_rank(4), of_rank(4), of_rank(4), of_rank(4)});
}

TEST(LowRankTensors, PoisonsTheMatrixAndKeepsTheResidual) {
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf})
    for (const float bad : {std::numeric_limits<float>::infinity(), NAN}) {
      at::manual_seed(kStagesSeed);
      const std::vector<MatrixShape> shapes{{8, 9, 1}, {9, 8, 1}};
      std::vector<RankOfStages> ranks;
      for (int rank = 0; rank < 2; ++rank) {
        ranks.emplace_back(shapes, dtype);
        ranks[rank].bucket.normal_();
        ranks[rank].residuals[0].assign(std::vector<float>(72, 0.5F));
      }
      ranks[1].bucket[5] = bad;
      const std::vector<float> right = ranks[0].rights[0].on_host();
      reduce(ranks);
      for (const RankOfStages& rank : ranks) {
        EXPECT_TRUE(rank.values(0).isnan().all().item<bool>());
        EXPECT_TRUE(rank.values(1).isfinite().all().item<bool>());
        EXPECT_TRUE(rank.old_residual(0).eq(0.5F).all().item<bool>());
        EXPECT_TRUE(rank.old_residual(1).isfinite().all().item<bool>());
        EXPECT_EQ(rank.rights[0].on_host(), right);
      }
    }
}

TEST(LowRankTensors, WithoutErrorFeedbackThereIsNoResidual) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    at::manual_seed(kStagesSeed);
    std::vector<RankOfStages> ranks(1, {{kLate}, dtype, false});
    ranks[0].bucket.copy_(of_rank(2).flatten());
    reduce(ranks);
    const at::Tensor given = of_rank(2).flatten();
    const double off = (ranks[0].bucket.to(at::kFloat) - given).norm().item<double>();
    EXPECT_LT(off / given.norm().item<double>(), dtype == at::kFloat ? 1e-5 : 2e-2);
  }
}

// A DDP hook runs inside autocast if the backward pass does.
TEST(LowRankTensors, AutocastChangesNothing) {
  at::manual_seed(kStagesSeed);
  std::vector<RankOfStages> plain(1, {{kLate}, at::kFloat}), cast(1, {{kLate}, at::kFloat});
  plain[0].bucket.normal_();
  cast[0] = RankOfStages({kLate}, at::kFloat);
  cast[0].bucket.copy_(plain[0].bucket);
  reduce(plain);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  reduce(cast);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_TRUE(at::equal(plain[0].bucket, cast[0].bucket));
  EXPECT_TRUE(at::equal(plain[0].old_residual(0), cast[0].old_residual(0)));
}

}  // namespace
}  // namespace ringdist
