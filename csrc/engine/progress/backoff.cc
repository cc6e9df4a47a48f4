#include "engine/progress/backoff.h"

#include <algorithm>

namespace ringdist {

Backoff::Next Backoff::next(TimePoint now, Wait wait) const {
  const Duration waited = now - since_;
  if (core_ != Core::kShared && waited < kSpin) return Next::kPoll;
  if (wait == Wait::kNothing || waited >= (wait == Wait::kFar ? kStayFar : kStay))
    return Next::kSleep;
  return core_ == Core::kTaken && now < probe_at_ ? Next::kSleep : Next::kYield;
}

void Backoff::yielded(Duration took, TimePoint now) {
  if (took >= kSlice) {
    core_ = Core::kTaken;
    // While the core stays taken, probes become half as frequent each time. In the end, slices are
    // lost for about a hundredth of the time.
    probe_at_ = now + took * (1 << std::min(slices_++, kMostProbes));
    return;
  }
  slices_ = 0;
  quiet_yields_ = took < kSwitch ? quiet_yields_ + 1 : 0;
  if (quiet_yields_ == 0)
    core_ = Core::kShared;
  else if (core_ == Core::kTaken || quiet_yields_ >= kQuietYields)
    core_ = Core::kOurs;
}

}  // namespace ringdist
