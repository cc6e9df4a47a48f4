#include "compress/step_transaction.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "compress/compression_options.h"

namespace ringdist {

// The flag is read as well, because a pass may end without its last bucket: then the next bucket's
// index may be larger.
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
  // a new flag, because others may still set the old one
  all_in_ = std::make_shared<std::atomic<bool>>();
}

void StepStatistics::begin(int64_t step, std::string codec) {
  before_ = now_;
  now_.step = step;
  now_.codec = std::move(codec);
  if (now_.codec != kAuto) choose({}, "");
  now_.bytes_uncompressed = now_.bytes_sent = 0;
}

void StepStatistics::choose(std::vector<std::string> chosen, std::string reason) {
  now_.chosen = std::move(chosen);
  now_.reason = std::move(reason);
}

void StepStatistics::add_bytes(double uncompressed, double sent) {
  now_.bytes_uncompressed += uncompressed;
  now_.total_uncompressed += uncompressed;
  now_.bytes_sent += sent;
  now_.total_sent += sent;
}

void StepStatistics::measure(const Parameter& parameter, double contribution) {
  measured_.push_back(&parameter);
  contribution_ += contribution;
}

void StepStatistics::drop_measurement() {
  measured_.clear();
  contribution_ = 0;
}

void StepStatistics::fail() {
  drop_measurement();
  now_ = before_;
}

void StepStatistics::succeed() {
  if (measured_.empty()) return;
  double loss = 0;
  for (const Parameter* parameter : measured_) loss += parameter->residual->squared_norm();
  const double contribution = contribution_;
  drop_measurement();
  if (contribution == 0 || !std::isfinite(contribution) || !std::isfinite(loss)) return;
  total_contribution_ += contribution;
  total_loss_ += loss;
  now_.measured_step = now_.step;
  now_.relative_error = std::sqrt(loss / contribution);
  now_.total_relative_error = std::sqrt(total_loss_ / total_contribution_);
}

}  // namespace ringdist
