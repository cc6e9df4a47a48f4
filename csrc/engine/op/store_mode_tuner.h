// Chooses how ops that write more than the caches hold store their data: through the caches or past
// them. The faster mode depends on the processor, on the distance between cores and on other users
// of memory, and it changes over time. Ops of each kind and size are therefore timed with both
// modes, and the slower mode is tried again every few ops. The mode never alters results.
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "kernel/copy.h"
#include "plan/op_spec.h"

namespace ringdist {

// Measures both store modes by collective and by power of two of the size.
class StoreModeTuner {
 public:
  // Smaller outputs are always stored through the caches, as they may still be there when they are
  // read.
  static constexpr int64_t kLongBytes = int64_t{16} << 20;

  // One op's store mode, and the entry in which its time is recorded.
  struct Trial {
    StoreMode stores = StoreMode::kCached;
    std::optional<size_t> of;  // index of the entry; empty if the op is not timed
    TimePoint began;
  };

  // Chooses the mode of an op that writes `bytes` bytes.
  Trial begin(Collective kind, int64_t bytes, TimePoint now);
  // Records the time of an op that has succeeded. Failed ops must not be recorded.
  void ended(const Trial& trial, TimePoint now);

 private:
  static constexpr size_t kSizes = 64;  // log2
  // Measurements of one kind and size.
  struct Known {
    std::array<Duration, 2> shortest{};  // shortest time by StoreMode; it grows a little with each
                                         // op, so that old measurements lose weight
    uint32_t ops = 0;                    // ops begun so far
  };

  std::array<Known, kCollectives * kSizes> known_{};
};

}  // namespace ringdist
