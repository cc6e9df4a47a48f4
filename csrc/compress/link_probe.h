// What ops cost just now, for the codec "auto". All ranks of the group call the same in the same
// order, with no op in flight, one thread at a time; arithmetic is timed while the other ranks do
// theirs, because they may share this machine. Errors are those of the ops.
//
// On a device by its own clock: how long the host takes to hear of it does not count.
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

// The arithmetic of PowerSGD without the exchange, for timing it: over a matrix beyond the caches,
// as gradients are. One thread at a time.
class LowRankBenchmark {
 public:
  explicit LowRankBenchmark(const MatrixShape& shape);
  // What a reduction computes on the way, residual included.
  void run();

 private:
  const MatrixShape shape_;
  std::vector<float> values_, residual_, left_, right_;
};

// Of the host, whatever memory is meant.
std::function<void()> benchmark_on_host(const MatrixShape& shape, GradientMemory&);

class LinkProbe final : public CostProbe {
 public:
  // What it needs of its owner.
  struct Delegate {
    // Returns when the op has finished, or throws, which ends the probing: the op goes on.
    std::function<void(const Op&)> wait;
    Now now;
    // The arithmetic of PowerSGD, to be called several times: it has run when the next `now` has
    // passed. All ranks ask alike. Errors: kNotSupported, PowerSGD cannot be used there.
    std::function<Result<std::function<void()>>(const MatrixShape&, GradientMemory&)> benchmark =
        benchmark_on_host;
  };

  LinkProbe(std::shared_ptr<Communicator> group, Delegate tools)
      : group_(std::move(group)), tools_(std::move(tools)) {}

  Result<std::vector<double>> mean(std::vector<double> values) override;
  Result<double> latency(GradientMemory& memory) override;
  Result<std::vector<double>> codec_seconds(std::span<const std::string> codecs, double latency,
                                            std::optional<bool> feedback,
                                            GradientMemory& memory) override;
  Result<LowRankSeconds> low_rank_seconds(GradientMemory& memory) override;

 private:
  Result<double> average(OpRequest request);
  Error meet();
  template <typename Body>
  Result<double> shortest(const Body& body);
  Result<double> time(int64_t count, const std::string& codec, std::optional<bool> feedback,
                      GradientMemory& memory);
  Result<double> arithmetic(const MatrixShape& shape, GradientMemory& memory);

  const std::shared_ptr<Communicator> group_;
  const Delegate tools_;
  std::map<GradientMemory*, LowRankSeconds> low_rank_;
};

}  // namespace ringdist
