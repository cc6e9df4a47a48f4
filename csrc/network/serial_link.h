// A line with a rate: bytes pass one message after another, in the order in which their first bytes
// come. What has begun to come passes on before all of it is there.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace ringdist {

class SerialLink {
 public:
  struct Transit {
    TimePoint first;  // when its first byte is through
    TimePoint last;
  };

  // Of a message whose first and last byte come then, and that alone would take `time`. In the
  // order of `first`.
  Transit pass(TimePoint first, TimePoint last, Duration time) {
    const TimePoint begin = std::max(first, free_);
    free_ = std::max(begin + time, last);
    return {begin, free_};
  }

 private:
  TimePoint free_{};
};

}  // namespace ringdist
