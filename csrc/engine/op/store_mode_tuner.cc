#include "engine/op/store_mode_tuner.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace ringdist {
namespace {

constexpr uint32_t kFirst = 6;          // the first ops alternate between both modes
constexpr uint32_t kBetweenTries = 16;  // one op in so many tries the slower mode
constexpr int kForgetting = 64;         // a measured time grows by a 64th with each op

}  // namespace

StoreModeTuner::Trial StoreModeTuner::begin(Collective kind, int64_t bytes, TimePoint now) {
  if (bytes < kLongBytes) return {};
  const auto log2 = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(bytes)) - 1);
  const size_t of = static_cast<size_t>(kind) * kSizes + log2;
  Known& known = known_[of];
  const uint32_t turn = known.ops++;
  auto stores = known.shortest[1] < known.shortest[0] ? StoreMode::kStreaming : StoreMode::kCached;
  if (turn < kFirst)
    stores = turn % 2 == 0 ? StoreMode::kCached : StoreMode::kStreaming;
  else if (turn % kBetweenTries == 0)
    stores = stores == StoreMode::kCached ? StoreMode::kStreaming : StoreMode::kCached;
  return {stores, of, now};
}

void StoreModeTuner::ended(const Trial& trial, TimePoint now) {
  if (!trial.of) return;
  Duration& shortest = known_[*trial.of].shortest[static_cast<size_t>(trial.stores)];
  const Duration took = now - trial.began;
  shortest += shortest / kForgetting;
  if (shortest == Duration(0) || took < shortest) shortest = took;
}

}  // namespace ringdist
