#include "torch/work/sparse_work.h"

#include <utility>

namespace ringdist {

SparseWork::SparseWork(std::shared_ptr<Communicator> group, const at::Tensor& tensor,
                       uint64_t number)
    : GroupWork(group, number, std::make_shared<Completion>(group->hooks(), 1),
                c10d::OpType::_ALLREDUCE_SPARSE, "ringdist:sparse_all_reduce",
                std::vector<at::Tensor>{tensor}),
      tensor_(tensor) {}

bool SparseWork::wait_until_ended(std::optional<Milliseconds> limit) {
  std::unique_lock lock(mutex_);
  const auto is_completed = [this] { return completed_; };
  if (limit) return cv_.wait_for(lock, *limit, is_completed);
  cv_.wait(lock, is_completed);
  return true;
}

void SparseWork::end(const std::exception_ptr& error) {
  const FuturePtr future = getFuture();  // first: who asks for it after a wait() gets it marked
  finish(error);  // before the Future is marked: its callbacks may wait for us, or in a barrier
  group().output_delivered(getSequencenumber());
  if (!error) report_success();
  mark(*future, error, {tensor_});
}

}  // namespace ringdist
