// "auto" in a Session: watches its buckets, asks the link when a choice is due, and gives the
// parameters of each bucket the codec that was chosen for it. Not thread-safe, but for the
// callbacks of buckets, which may come from any thread and after our end.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_annotations.h"
#include "compress/auto_codec.h"
#include "compress/bucket.h"
#include "compress/cost_probe.h"
#include "compress/parameter_table.h"
#include "compress/time_marker.h"

namespace ringdist {

class AutoCodecTuner {
 public:
  // In a group of `size`. `now` is also called in callbacks of buckets: then, of the end of theirs.
  AutoCodecTuner(CostProbe& probe, int size, std::optional<bool> feedback, Now now);

  struct Chosen {
    std::vector<std::string> codecs;  // of each bucket
    std::string reason;
  };

  // After steps with another codec: on from the last choice; nullopt if there was none.
  std::optional<Chosen> resume(ParameterTable& table);
  // Before the first bucket of a step: all ranks come here at the same steps, so the ops match.
  // What was chosen, if a choice was due. Errors are those of the probe.
  Result<std::optional<Chosen>> begin_step(ParameterTable& table);
  // A bucket of so many elements is ready; `pending` tells when it is done.
  void watch(size_t index, double elements, std::vector<Parameter*> parameters,
             PendingBucket& pending);

 private:
  struct State {
    explicit State(int size) : codec(size) {}
    std::mutex mutex;
    AutoCodec codec RINGDIST_GUARDED_BY(mutex);
  };
  Chosen use_choice(ParameterTable& table) RINGDIST_REQUIRES(state_->mutex);
  Result<std::optional<Chosen>> choose(ParameterTable& table) RINGDIST_REQUIRES(state_->mutex);
  GradientMemory& memory() const;
  Result<std::vector<double>> low_rank_seconds(ParameterTable& table, double latency, double plain);

  const std::optional<bool> feedback_;
  const Now now_;
  CostProbe& probe_;
  std::vector<std::vector<Parameter*>> buckets_;  // what each held in the last step
  const std::shared_ptr<State> state_;
};

}  // namespace ringdist
