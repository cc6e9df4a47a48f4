// What ops cost just now: what "auto" asks before it chooses.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace ringdist {

class CostProbe {
 public:
  virtual ~CostProbe() = default;

  // Of what the ranks have put in: the same on all.
  virtual Result<std::vector<double>> mean(std::vector<double> values) = 0;
  // Seconds of a tiny average.
  virtual Result<double> latency() = 0;
  // Seconds per element of a large average, without the latency, by codec; feedback as
  // make_treatment() takes it.
  virtual Result<std::vector<double>> codec_seconds(std::span<const std::string> codecs,
                                                    double latency,
                                                    std::optional<bool> feedback) = 0;
  // Seconds per element of what PowerSGD computes on its way: timed once, links do not change it.
  virtual Result<double> low_rank_seconds() = 0;
};

}  // namespace ringdist
