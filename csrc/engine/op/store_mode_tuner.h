// How ops that write more than caches hold should store what arrives: through the caches or past
// them. Which is faster depends on the processor, on how far the cores are apart and on who else
// uses memory, and changes; so ops of each kind and size are timed with both, and now and then the
// slower one is tried again. It never alters bits.
//
// Every call comes with the lane's driver token held.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "kernel/copy.h"
#include "plan/op_spec.h"

namespace ringdist {

class StoreModeTuner {
 public:
  // Less may still lie in a cache when it is read.
  static constexpr int64_t kLongBytes = int64_t{16} << 20;

  struct Trial {
    StoreMode stores = StoreMode::kCached;
    std::optional<size_t> of;  // none: it is not timed
    TimePoint began;
  };

  // Of an op that writes so many bytes.
  Trial begin(Collective kind, int64_t bytes, TimePoint now);
  // It has succeeded.
  void ended(const Trial& trial, TimePoint now);

 private:
  static constexpr size_t kKinds = static_cast<size_t>(Collective::kPointToPoint) + 1;
  static constexpr size_t kSizes = 64;  // log2
  struct Known {
    std::array<Duration, 2>
        shortest{};  // by StoreMode; grows with each op, as what was may be no more
    uint32_t ops = 0;
  };

  std::array<Known, kKinds * kSizes> known_{};
};

}  // namespace ringdist
