// Interface through which the codec "auto" measures the cost of ops before it chooses
// (compress/auto_codec.h). LinkProbe implements it with ops of the group; tests replace it with
// fixed numbers.
//
// All ranks must make the same calls in the same order. Calls wait for the ops that they run. One
// thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "codec/gradient_memory.h"

namespace ringdist {

// Cost of PowerSGD's arithmetic for one matrix, without the exchange of factors.
struct LowRankSeconds {
  double matrix = 0;   // per matrix; infinite if PowerSGD is not available
  double element = 0;  // additional cost per element
  // Returns the seconds for a matrix of `elements` elements.
  double of(int64_t elements) const { return matrix + element * static_cast<double>(elements); }
};

// Measures communication and arithmetic. `memory` is the place of the gradients (host or device),
// and ops are timed there. Errors are those of the ops.
class CostProbe {
 public:
  virtual ~CostProbe() = default;

  // Returns the mean over the ranks of each of the values. The result is the same on all ranks, so
  // decisions based on it agree. All ranks pass equally many values.
  virtual Result<std::vector<double>> mean(std::vector<double> values) = 0;
  // Returns the seconds of an allreduce of one element.
  virtual Result<double> latency(GradientMemory& memory) = 0;
  // Returns, for each codec, the seconds per element of a large allreduce. `latency` has been
  // subtracted. `feedback` has the meaning that it has for make_compression_method().
  virtual Result<std::vector<double>> codec_seconds(std::span<const std::string> codecs,
                                                    double latency, std::optional<bool> feedback,
                                                    GradientMemory& memory) = 0;
  // Returns the cost of PowerSGD's arithmetic. It is measured once per memory, because it does not
  // depend on the links.
  virtual Result<LowRankSeconds> low_rank_seconds(GradientMemory& memory) = 0;
};

}  // namespace ringdist
