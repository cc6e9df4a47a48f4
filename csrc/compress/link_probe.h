// What ops cost just now, for the codec "auto". All ranks of the group call the same in the same
// order, with no op in flight, one thread at a time; arithmetic is timed while the other ranks do
// theirs, because they may share this machine. Errors are those of the ops.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compress/cost_probe.h"
#include "engine/communicator.h"

namespace ringdist {

class LinkProbe final : public CostProbe {
 public:
  // Returns when the op has finished, or throws, which ends the probing: the op goes on.
  using Wait = std::function<void(const Op&)>;

  LinkProbe(std::shared_ptr<Communicator> group, Wait wait)
      : group_(std::move(group)), wait_(std::move(wait)) {}

  Result<std::vector<double>> mean(std::vector<double> values) override;
  Result<double> latency() override;
  Result<std::vector<double>> codec_seconds(std::span<const std::string> codecs, double latency,
                                            std::optional<bool> feedback) override;
  Result<double> low_rank_seconds() override;

 private:
  Error average(OpRequest request);
  Error meet();
  Result<double> time(int64_t count, const std::string& codec, std::optional<bool> feedback);

  const std::shared_ptr<Communicator> group_;
  const Wait wait_;
  std::optional<double> low_rank_;
};

}  // namespace ringdist
