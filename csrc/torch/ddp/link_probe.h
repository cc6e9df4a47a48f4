// What ops cost just now, for the codec "auto". All ranks of the group call the same in the same
// order, with no op in flight, one thread at a time; arithmetic is timed while the other ranks do
// theirs, because they may share this machine.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "torch/backend.h"

namespace ringdist {

class LinkProbe {
 public:
  explicit LinkProbe(c10::intrusive_ptr<ProcessGroupRing> group) : group_(std::move(group)) {}

  // Of what the ranks have put in: the same on all.
  std::vector<double> mean(std::vector<double> values) const;
  // Seconds of a tiny average.
  double latency() const;
  // Seconds per element of a large average, without the latency, by codec; feedback as
  // make_treatment() takes it.
  std::vector<double> codec_seconds(std::span<const std::string> codecs, double latency,
                                    std::optional<bool> feedback) const;
  // Seconds per element of what PowerSGD computes on its way: timed once, links do not change it.
  double low_rank_seconds();

 private:
  double time(int64_t count, const std::string& codec, std::optional<bool> feedback) const;

  const c10::intrusive_ptr<ProcessGroupRing> group_;
  std::optional<double> low_rank_;
};

}  // namespace ringdist
