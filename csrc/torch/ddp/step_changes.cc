#include "torch/ddp/step_changes.h"

#include <algorithm>
#include <utility>

namespace ringdist {

void StepChanges::begin() {
  *this = {};
  begun_ = true;
}

void StepChanges::add_bucket(c10::intrusive_ptr<c10::ivalue::Future> bucket) {
  buckets_.push_back(std::move(bucket));
}

void StepChanges::end() {
  if (pending() && !*complete_) failed_ = true;
  for (const auto& bucket : buckets_) bucket->wait();
}

StepChanges::Outcome StepChanges::settle() {
  if (!*complete_ && !failed_) return Outcome::kOpen;
  // The Futures themselves are asked: their callbacks may come after whoever waits for them.
  if (!std::ranges::all_of(buckets_, [](const auto& bucket) { return bucket->completed(); }))
    return Outcome::kOpen;
  const bool failed =
      failed_ || std::ranges::any_of(buckets_, [](const auto& b) { return b->hasError(); });
  if (!failed) {
    for (const auto& [parameter, owed] : residuals_) parameter->residual->commit(owed);
    for (Parameter* parameter : rights_) parameter->right.swap(parameter->next_right);
  }
  *this = {};
  return failed ? Outcome::kFailed : Outcome::kSucceeded;
}

}  // namespace ringdist
