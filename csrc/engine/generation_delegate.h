#pragma once

#include <cstdint>

#include "base/error.h"

namespace ringdist {

// The group of one generation, as those after it need it. Any thread.
class GenerationDelegate {
 public:
  virtual ~GenerationDelegate() = default;
  // Ends it here, with a failure that is told nobody; the first collective that has not ended well
  // here.
  virtual uint64_t stop_and_report(const Error& cause) = 0;
};

}  // namespace ringdist
