// Measures the cost of ops and arithmetic for the codec "auto", by running them.
//
// All ranks of the group make the same calls in the same order, with no other op in flight. One
// thread at a time may call. Arithmetic is timed on all ranks at once, because ranks may share a
// machine and slow each other down. Errors are those of the ops.
//
// On a device, times come from the device's clock, so the delay until the host notices a completion
// does not count.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "codec/gradient_memory.h"
#include "compress/cost_probe.h"
#include "compress/time_marker.h"
#include "engine/communicator.h"
#include "kernel/low_rank.h"

namespace ringdist {

// PowerSGD's arithmetic without the exchange, for timing. It runs over a matrix of noise with the
// given shape. One thread at a time.
class LowRankBenchmark {
 public:
  explicit LowRankBenchmark(const MatrixShape& shape);
  // Does the arithmetic of one reduction: two products, orthonormalisation and reconstruction, with
  // a residual.
  void run();

 private:
  const MatrixShape shape_;
  std::vector<float> values_, residual_, left_, right_;
};

// Returns the benchmark on the host, regardless of the memory that is given. It is the default of
// LinkProbe::Delegate.
std::function<void()> benchmark_on_host(const MatrixShape& shape, GradientMemory&);

// CostProbe that times real ops of a group. Each measurement is the shortest of three, and ranks
// synchronize before each.
class LinkProbe final : public CostProbe {
 public:
  // Functions of the owner, which differ between the host and devices.
  struct Delegate {
    // Waits until the op has completed. May throw, for example when the caller is interrupted; the
    // exception ends the measurement, while the op continues.
    std::function<void(const Op&)> wait;
    // Clock of the measurements.
    Now now;
    // Returns a function that runs PowerSGD's arithmetic once per call. Its work is done when the
    // next marker of `now` has passed. All ranks call it alike. Error kNotSupported: PowerSGD
    // cannot run in that memory.
    std::function<Result<std::function<void()>>(const MatrixShape&, GradientMemory&)> benchmark =
        benchmark_on_host;
  };

  // `group` must be used for nothing else during a call.
  LinkProbe(std::shared_ptr<Communicator> group, Delegate tools)
      : group_(std::move(group)), tools_(std::move(tools)) {}

  Result<std::vector<double>> mean(std::vector<double> values) override;
  Result<double> latency(GradientMemory& memory) override;
  Result<std::vector<double>> codec_seconds(std::span<const std::string> codecs, double latency,
                                            std::optional<bool> feedback,
                                            GradientMemory& memory) override;
  Result<LowRankSeconds> low_rank_seconds(GradientMemory& memory) override;

 private:
  // Runs an allreduce and returns its duration in seconds.
  Result<double> average(OpRequest request);
  // Waits for the device and then synchronizes the ranks.
  Error meet();
  // Returns the shortest of several durations that `body` returns, in seconds. Ranks meet before
  // each.
  template <typename Body>
  Result<double> shortest(const Body& body);
  // Returns the seconds of an allreduce of `count` float32 elements with `codec`.
  Result<double> time(int64_t count, const std::string& codec, std::optional<bool> feedback,
                      GradientMemory& memory);
  // Returns the seconds of PowerSGD's arithmetic on one matrix.
  Result<double> arithmetic(const MatrixShape& shape, GradientMemory& memory);

  const std::shared_ptr<Communicator> group_;
  const Delegate tools_;
  std::map<GradientMemory*, LowRankSeconds> low_rank_;  // measured once per memory
};

}  // namespace ringdist
