#include "torch/ddp/bucket_reducer.h"

#include "torch/ddp/low_rank_sample.h"
#include "torch/ddp/low_rank_tensors.h"
#include "torch/ddp/pending_future_bucket.h"
#include "torch/ddp/pending_work_bucket.h"
#include "torch/errors.h"
#include "torch/work/combined_future.h"

namespace ringdist {
namespace {

c10d::AllreduceOptions average_options() {
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::AVG;
  options.asyncOp = true;
  return options;
}

}  // namespace

LowRankReducer& BucketReducer::reducer() {
  if (!reducer_) {
    auto duplicate = group_->communicator()->duplicate("/low_rank");
    throw_if(duplicate.error());
    reducer_ = std::make_unique<LowRankReducer>(duplicate.value());
  }
  return *reducer_;
}

DeviceLowRank& BucketReducer::streamed(c10::Device device) {
  if (!streamed_) {
    throw_if(check_devices_alike(probe_, device));
    streamed_ = std::make_unique<DeviceLowRank>(
        [group = group_](const at::Tensor& factors) {
          return group->allreduce_with_codec_map({factors}, average_options(), nullptr);
        },
        [](const at::Tensor& bucket, const std::vector<LowRankInput>& inputs) {
          return std::make_unique<LowRankTensors>(bucket, inputs);
        });
  }
  return *streamed_;
}

void BucketReducer::check_not_forked() const {
  if (group_->communicator()->context().forked())
    throw_error(Error(ErrorKind::kAborted,
                      "ringdist: compress: this process was forked from one that had created the "
                      "group; its connections belong to the parent"));
}

WorkPtr BucketReducer::run_rest(const at::Tensor& buffer, const PlannedBucket& planned) {
  const BucketPlan& plan = planned.plan;
  std::vector<at::Tensor> pieces;
  for (const ParameterSlice& piece : plan.pieces)
    pieces.push_back(buffer.narrow(0, piece.offset, piece.count));
  if (pieces.empty()) pieces.push_back(buffer);  // an empty bucket, or one of float64
  plan.codec_map->keep_alive = planned.keep_alive;
  return group_->allreduce_with_codec_map(pieces, average_options(),
                                          plan.coded ? plan.codec_map : nullptr);
}

BucketReducer::Running BucketReducer::run(const at::Tensor& buffer, PlannedBucket planned) {
  const bool on_host = buffer.is_cpu();
  if (planned.low_rank.empty() && planned.plan.pieces.size() <= 1) {
    auto work = run_rest(buffer, planned);
    auto future = work->getFuture();
    if (on_host) return {future, std::make_shared<PendingFutureBucket>(future)};
    return {future, std::make_shared<PendingWorkBucket>(PendingWorkBucket::Works{std::move(work)},
                                                        nullptr, future)};
  }
  check_not_forked();
  return on_host ? run_on_host(buffer, std::move(planned))
                 : run_on_device(buffer, std::move(planned));
}

BucketReducer::Running BucketReducer::run_on_device(const at::Tensor& buffer,
                                                    PlannedBucket planned) {
  DeviceLowRank::StartRest rest;
  if (!planned.plan.pieces.empty())
    rest = [&](const PlannedBucket& bucket) { return run_rest(buffer, bucket); };
  return streamed(buffer.device()).run(buffer, std::move(planned), rest);
}

BucketReducer::Running BucketReducer::run_on_host(const at::Tensor& buffer, PlannedBucket planned) {
  const bool rest = !planned.plan.pieces.empty();
  auto join = std::make_shared<CombinedFuture>(std::vector{buffer}, rest ? 2 : 1);
  std::vector<LowRankMatrix> matrices;
  auto dtype = to_dtype("compress", "the bucket of gradients", buffer, ReduceOp::kAvg);
  throw_if(dtype.error());
  for (const LowRankInput& input : planned.low_rank) {
    const ParameterSlice& slice = input.matrix.slice;
    auto* values =
        static_cast<std::byte*>(buffer.data_ptr()) + slice.offset * buffer.element_size();
    matrices.push_back({input.matrix.shape, dtype.value(), values, slice.residual,
                        input.right.data(), slice.next, input.next_right.data()});
  }
  LowRankReducer& low_rank_reducer = reducer();
  if (rest) CombinedFuture::follow(join, *run_rest(buffer, planned)->getFuture());
  // Callbacks of the Future may wait for other buckets, so the reducer's thread does not run them.
  auto communicator = group_->communicator();
  low_rank_reducer.reduce(std::move(matrices), [join, communicator, buffer,
                                                planned = std::move(planned)](const Error& error) {
    communicator->context().pool().run_callbacks(
        [join, buffer, error] { join->arrive(error ? to_exception(error) : nullptr); });
  });
  return {join->future(), std::make_shared<PendingFutureBucket>(join->future())};
}

}  // namespace ringdist
