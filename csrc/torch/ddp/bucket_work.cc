#include "torch/ddp/bucket_work.h"

#include "torch/errors.h"
#include "torch/work/future_join.h"

namespace ringdist {

LowRankReducer& BucketWork::reducer() {
  if (!reducer_) {
    auto sibling = group_->communicator()->sibling("/low_rank");
    throw_if(sibling.error());
    reducer_ = std::make_unique<LowRankReducer>(sibling.value());
  }
  return *reducer_;
}

c10::intrusive_ptr<c10d::Work> BucketWork::run_rest(const at::Tensor& buffer,
                                                    const BucketPlan& plan,
                                                    const std::shared_ptr<void>& keep_alive) {
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::AVG;
  options.asyncOp = true;
  std::vector<at::Tensor> pieces;
  for (const Slice& piece : plan.pieces)
    pieces.push_back(buffer.narrow(0, piece.offset, piece.count));
  if (pieces.empty()) pieces.push_back(buffer);  // an empty bucket, or one of float64
  plan.blocks->keep_alive = keep_alive;
  return group_->allreduce_blocks(pieces, options, plan.coded ? plan.blocks : nullptr);
}

BucketWork::Running BucketWork::run(const at::Tensor& buffer, PlannedBucket planned) {
  const BucketPlan& plan = planned.plan;
  if (planned.low_rank.empty() && plan.pieces.size() <= 1) {
    auto work = run_rest(buffer, plan, planned.keep_alive);
    auto future = work->getFuture();
    return {std::move(future), std::move(work)};
  }
  if (group_->communicator()->context().forked())
    throw_error(Error(ErrorKind::kAborted,
                      "ringdist: compress: this process was forked from one that had created the "
                      "group; its connections belong to the parent"));
  const bool rest = !plan.pieces.empty();
  auto join = std::make_shared<FutureJoin>(std::vector{buffer}, rest ? 2 : 1);
  std::vector<LowRankMatrix> matrices;
  auto dtype = to_dtype("compress", "the bucket of gradients", buffer, ReduceOp::kAvg);
  throw_if(dtype.error());
  for (const LowRankInput& input : planned.low_rank) {
    const Slice& slice = input.matrix.slice;
    auto* values =
        static_cast<std::byte*>(buffer.data_ptr()) + slice.offset * buffer.element_size();
    matrices.push_back({input.matrix.shape, dtype.value(), values, slice.residual,
                        input.right->data(), slice.next, input.next_right->data()});
  }
  LowRankReducer& low_rank_reducer = reducer();
  if (rest) FutureJoin::follow(join, *run_rest(buffer, plan, planned.keep_alive)->getFuture());
  // Callbacks of the Future may wait for other buckets, so the reducer's thread does not run them.
  auto communicator = group_->communicator();
  low_rank_reducer.reduce(std::move(matrices), [join, communicator, buffer,
                                                planned = std::move(planned)](const Error& error) {
    communicator->context().pool().run(
        [join, buffer, error] { join->arrive(error ? to_exception(error) : nullptr); });
  });
  return {join->future(), nullptr};
}

}  // namespace ringdist
