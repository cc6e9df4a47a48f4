// Guard for the floating-point mode of a thread during arithmetic: rounding to nearest, subnormal
// numbers kept. Users change the mode for their threads (torch.set_flush_denormal), and new threads
// inherit it from their creator. Results must not depend on which thread computes them.
#pragma once

#include <fenv.h>

namespace ringdist {

// Sets the default mode of this thread, and restores the former one at the end of the scope.
class ScopedFloatMode {
 public:
  ScopedFloatMode() {
    fegetmode(&before_);
    fesetmode(FE_DFL_MODE);
  }
  ~ScopedFloatMode() { fesetmode(&before_); }
  ScopedFloatMode(const ScopedFloatMode&) = delete;
  ScopedFloatMode& operator=(const ScopedFloatMode&) = delete;

 private:
  femode_t before_;
};

}  // namespace ringdist
