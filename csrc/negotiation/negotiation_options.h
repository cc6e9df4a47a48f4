#pragma once

#include "base/clock.h"
#include "negotiation/order/negotiator.h"

namespace ringdist {

struct NegotiationOptions {
  NegotiatorOptions order;
  Duration warn_after = std::chrono::seconds(60);  // as of StallInspector
};

}  // namespace ringdist
