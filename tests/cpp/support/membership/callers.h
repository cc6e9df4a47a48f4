// Callers of the processes of a simulated World. They request a new generation when their process
// detects a loss. They also model the control plane, which reports processes that were unreachable
// for too long.
#pragma once

#include <cstdint>

namespace ringdist::membership {

class World;

class Callers {
 public:
  explicit Callers(World& world) : world_(world) {}

  void shrink(int index);
  // The process detects a loss in its present generation and its caller reacts within `most_ms`
  // ms.
  void shrink_within(int index, int64_t most_ms);
  // Runs the failure detector of the process after a random delay in the given range.
  void detect_within(int index, int64_t least_ms, int64_t most_ms);
  void detect_all_soon();

 private:
  void detect(int index);

  World& world_;
};

}  // namespace ringdist::membership
