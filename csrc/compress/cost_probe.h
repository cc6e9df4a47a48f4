// What ops cost just now: what "auto" asks before it chooses.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "codec/gradient_memory.h"

namespace ringdist {

// Of what PowerSGD computes on its way.
struct LowRankSeconds {
  double matrix = 0;   // whatever its size; infinite: it cannot be used
  double element = 0;  // of it
  double of(int64_t elements) const { return matrix + element * static_cast<double>(elements); }
};

// `memory`: where the gradients are, and ops are timed.
class CostProbe {
 public:
  virtual ~CostProbe() = default;

  // Of what the ranks have put in: the same on all.
  virtual Result<std::vector<double>> mean(std::vector<double> values) = 0;
  // Seconds of a tiny average.
  virtual Result<double> latency(GradientMemory& memory) = 0;
  // Seconds per element of a large average, without the latency, by codec; feedback as
  // make_compression_method() takes it.
  virtual Result<std::vector<double>> codec_seconds(std::span<const std::string> codecs,
                                                    double latency, std::optional<bool> feedback,
                                                    GradientMemory& memory) = 0;
  // Timed once, links do not change it.
  virtual Result<LowRankSeconds> low_rank_seconds(GradientMemory& memory) = 0;
};

}  // namespace ringdist
