// What a Session tells of its steps: bytes, relative errors, and of which step they are. A step
// that did not succeed leaves it as it was. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compress/parameter_table.h"

namespace ringdist {

struct CompressionReport {
  int64_t step = -1;  // the last one that was complete
  std::string codec;
  std::vector<std::string> chosen;  // by "auto", of each bucket; empty before it has chosen
  std::string reason;               // why
  double residual_norm = 0;         // of all that this rank owes, without the loss scale
  // What this rank sends for the last step's gradients, and for all, without and with codecs.
  double bytes_uncompressed = 0, bytes_sent = 0;
  double total_uncompressed = 0, total_sent = 0;
  // |what was lost| / |gradient + residual|, of the last step that was measured and of all.
  int64_t measured_step = -1;
  double relative_error = 0, total_relative_error = 0;
};

class StepStatistics {
 public:
  explicit StepStatistics(std::string codec) { now_.codec = std::move(codec); }

  // The step under way, or the last one; and the one before it.
  const CompressionReport& now() const { return now_; }
  const CompressionReport& before() const { return before_; }

  // `codec`: of this step. What "auto" chose is kept if that is still asked.
  void begin(int64_t step, std::string codec);
  void choose(std::vector<std::string> chosen, std::string reason);
  void add_bytes(double uncompressed, double sent);
  // What a parameter sends is measured: |gradient + residual|^2.
  void measure(const Parameter& parameter, double contribution);

  // The step has ended. After a success the residuals hold what it lost.
  void succeed();
  void fail();
  // What was measured of the step under way does not count.
  void drop_measurement();

 private:
  CompressionReport now_;
  CompressionReport before_;
  std::vector<const Parameter*> measured_;
  double contribution_ = 0;  // squared norms
  double total_contribution_ = 0;
  double total_loss_ = 0;
};

}  // namespace ringdist
