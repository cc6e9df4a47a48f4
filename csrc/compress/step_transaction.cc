#include "compress/step_transaction.h"

#include <algorithm>
#include <utility>

namespace ringdist {

bool StepTransaction::begins_with(size_t index) const {
  return state_ == State::kIdle || *all_in_ || index <= last_;
}

void StepTransaction::begin() {
  drop();
  state_ = State::kOpen;
}

void StepTransaction::arrive(const Bucket& bucket) {
  last_ = bucket.index;
  if (bucket.last) *all_in_ = true;
}

void StepTransaction::fail() {
  if (state_ == State::kOpen) state_ = State::kFailed;
}

void StepTransaction::end() {
  if (!*all_in_) fail();
  for (const auto& bucket : buckets_) bucket->wait();
}

void StepTransaction::await_devices() const {
  if (!*all_in_) return;
  for (const auto& bucket : buckets_)
    if (bucket->ends_later()) bucket->wait();
}

StepTransaction::Outcome StepTransaction::try_commit() {
  if (state_ == State::kIdle || (state_ == State::kOpen && !*all_in_)) return Outcome::kOpen;
  if (!std::ranges::all_of(buckets_, [](const auto& bucket) { return bucket->ended(); }))
    return Outcome::kOpen;
  const bool failed = state_ == State::kFailed ||
                      std::ranges::any_of(buckets_, [](const auto& b) { return b->failed(); });
  if (!failed) commit();
  drop();
  return failed ? Outcome::kFailed : Outcome::kSucceeded;
}

bool StepTransaction::commit_all() {
  if (state_ != State::kOpen || !*all_in_) return false;
  for (const auto& bucket : buckets_) bucket->wait();
  commit();
  drop();
  return true;
}

void StepTransaction::commit() {
  for (const auto& [parameter, nonzero] : residuals_) parameter->residual->commit(nonzero);
  for (Parameter* parameter : rights_) std::swap(parameter->right, parameter->next_right);
}

void StepTransaction::drop() {
  state_ = State::kIdle;
  residuals_.clear();
  rights_.clear();
  buckets_.clear();
  all_in_ = std::make_shared<std::atomic<bool>>();  // the last step's may still be set
}

}  // namespace ringdist
