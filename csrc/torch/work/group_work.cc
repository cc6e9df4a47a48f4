#include "torch/work/group_work.h"

#include <utility>

#include "torch/errors.h"
#include "torch/work/interrupts.h"

namespace ringdist {

GroupWork::GroupWork(std::shared_ptr<Communicator> group, uint64_t number, CompletionPtr completion,
                     c10d::OpType type, const char* title,
                     const std::optional<std::vector<at::Tensor>>& inputs)
    : BaseWork(std::move(completion), group->rank(), type, title, inputs),
      group_(std::move(group)),
      number_(number) {}

void GroupWork::abort() {
  group_->abort(describe() + " was aborted by rank " + std::to_string(group_->rank()));
}

void GroupWork::await(std::optional<Milliseconds> limit) {
  check_not_forked();
  if (!wait_in_slices(limit, [this](auto slice) { return wait_until_ended(slice); }))
    throw_error(Error(ErrorKind::kTimeout,
                      "ringdist: Timed out waiting " + std::to_string(limit->count()) + " ms for " +
                          describe() + ", which goes on; only this wait has ended"));
}

void GroupWork::check_future() {
  if (!ended()) check_not_forked();
}

void GroupWork::check_not_forked() const {
  if (group_->context().forked())
    throw_error(Error(ErrorKind::kAborted,
                      "ringdist: " + describe() +
                          " belongs to the process that this one was forked from; only that can "
                          "wait for it"));
}

}  // namespace ringdist
