#pragma once

#include <memory>

#include "base/clock.h"
#include "compress/moment.h"

namespace ringdist {

// Of the host's clock: in the past.
class HostMoment final : public Moment {
 public:
  explicit HostMoment(TimePoint time) : time_(time) {}

  bool passed() const override { return true; }
  double since(const Moment& earlier) const override {
    return seconds(time_ - static_cast<const HostMoment&>(earlier).time_);
  }

 private:
  const TimePoint time_;
};

inline MomentPtr host_now() { return std::make_shared<HostMoment>(Clock::now()); }

}  // namespace ringdist
