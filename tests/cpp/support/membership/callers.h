// The callers of the processes of a world: they want another generation when they hear of a loss,
// and are told by the control plane who has been out of reach for too long.
#pragma once

#include <cstdint>

namespace ringdist::membership {

class World;

class Callers {
 public:
  explicit Callers(World& world) : world_(world) {}

  void shrink(int index);
  // Hears of a loss in the generation that it is in, and reacts within so many ms.
  void shrink_within(int index, int64_t most_ms);
  // The control plane looks, a while from now.
  void detect_within(int index, int64_t least_ms, int64_t most_ms);
  void detect_all_soon();

 private:
  void detect(int index);

  World& world_;
};

}  // namespace ringdist::membership
