#include "compress/step_statistics.h"

#include <cmath>
#include <utility>

#include "compress/compression_options.h"

namespace ringdist {

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
