#include "torch/bucket_work.h"

#include <ATen/core/jit_type.h>

#include <mutex>

#include "torch/errors.h"

namespace ringdist {
namespace {

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

// A Future that is complete when both halves of a bucket are; the first error is its own.
class Join {
 public:
  Join(at::Tensor buffer, int halves) : buffer_(std::move(buffer)), left_(halves) {}

  const FuturePtr& future() const { return future_; }

  void arrive(const std::exception_ptr& error) {
    {
      std::lock_guard lock(mutex_);
      --left_;
      if (ended_ || (!error && left_ > 0)) return;
      ended_ = true;  // the other half may take as long as the group's timeout to fail, too
    }
    if (error)
      future_->setError(error);
    else
      future_->markCompleted(c10::IValue(std::vector<at::Tensor>{buffer_}));
  }

 private:
  const at::Tensor buffer_;
  const FuturePtr future_ =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  std::mutex mutex_;
  int left_;
  bool ended_ = false;
};

}  // namespace

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

FuturePtr BucketWork::run(const at::Tensor& buffer, const BucketPlan& plan,
                          std::vector<LowRankInput> low_rank, std::shared_ptr<void> keep_alive) {
  if (low_rank.empty() && plan.pieces.size() <= 1)
    return run_rest(buffer, plan, keep_alive)->getFuture();
  if (group_->communicator()->context().forked())
    throw_error(Error(ErrorKind::kAborted,
                      "ringdist: compress: this process was forked from one that had created the "
                      "group; its connections belong to the parent"));
  const bool rest = !plan.pieces.empty();
  auto join = std::make_shared<Join>(buffer, rest ? 2 : 1);
  std::vector<LowRankMatrix> matrices;
  auto dtype = to_dtype("compress", "the bucket of gradients", buffer, /*reduces=*/true);
  throw_if(dtype.error());
  for (const LowRankInput& input : low_rank) {
    const Slice& slice = input.matrix.slice;
    auto* values =
        static_cast<std::byte*>(buffer.data_ptr()) + slice.offset * buffer.element_size();
    float* residual = slice.residual != nullptr ? slice.residual->values.data() : nullptr;
    matrices.push_back({input.matrix.shape, dtype.value(), values, residual, input.right->data()});
  }
  LowRankReducer& low_rank_reducer = reducer();
  if (rest)
    run_rest(buffer, plan, keep_alive)->getFuture()->addCallback([join](c10::ivalue::Future& done) {
      join->arrive(done.hasError() ? done.exception_ptr() : nullptr);
    });
  // Callbacks of the Future may wait for other buckets, so the reducer's thread does not run them.
  auto communicator = group_->communicator();
  low_rank_reducer.reduce(
      std::move(matrices),
      [join, communicator, keep_alive, buffer, low_rank = std::move(low_rank)](const Error& error) {
        communicator->context().pool().run(
            [join, buffer, error] { join->arrive(error ? to_exception(error) : nullptr); });
      });
  return join->future();
}

}  // namespace ringdist
